-- Whoever holds a task's row longer makes its run wait, and not the worker.
set lock_timeout = '10s'
