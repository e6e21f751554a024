select sumaclock.delete_task(task_id => %(task_id)s::uuid)
