select sumaclock.run_task_now(task_id => %(task_id)s::uuid)
