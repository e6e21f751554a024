select occurrence, local_time, change from sumaclock.preview_task(task_id => %(task_id)s::uuid, count => %(count)s::integer)
