select sumaclock.resume_task(task_id => %(task_id)s::uuid)
