"""Tasks: what a person asked for, in their own time, exactly once.

api: what people do with tasks. kinds: what a task may do. handler: the cron kinds by which workers settle tasks.
settle: one task in one transaction, whatever happened to it. align: its clock job afterwards.
"""
