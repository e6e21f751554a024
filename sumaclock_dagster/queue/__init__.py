"""The queue: runs, their claims, and the workers that hold them. Owns the statements on cron_runs and workers.

runs: what people and the clock do with a run. claims: what a worker does with the runs it claimed.
workers: requests, sessions, the pool's state, and the release of what a dead worker held.
"""

RUNS_CHANNEL = "cron_runs"
WORKERS_CHANNEL = "sumaclock_workers"
