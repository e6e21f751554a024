select sumaclock.pause_task(task_id => %(task_id)s::uuid, reason => %(reason)s::text)
