"""The registry of task kinds: what a task may do when its time has come."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sumaclock_dagster.db import Connection
from sumaclock_dagster.handlers import CancelFlag, Registered, Registry, check_policy, load_registry
from sumaclock_dagster.model import Policy
from sumaclock_dagster.tasks.records import TaskTrigger


@dataclass(slots=True)
class TaskRun:
    """What the function of a task kind is given.

    connection: an app connection inside the transaction that records the task run. What is written through it happens
        together with that record: once, or not at all. Only an outcome of done keeps it. It must not be committed,
        rolled back or closed, and the task is locked meanwhile, so slow work belongs elsewhere (a queue, an outbox).
        Who asks for it begins a savepoint, so a kind that needs none had better not.
    run_id, job_id: of the run in the queue, and of its job.
    idempotency_key: the same for every attempt of this occurrence and for no other.
    scheduled_for: the minute (UTC) of the occurrence; for a manual run, the moment when it was asked for.
    attempt: 1 for the first.
    cancelled: set when nobody waits for this run any more.
    """

    task_id: UUID
    kind: str
    title: str
    payload: Any
    organization_id: str
    user_id: str
    timezone: str
    scheduled_for: datetime
    trigger: TaskTrigger
    attempt: int
    idempotency_key: str
    lend: Callable[[], Connection] = field(repr=False)
    log: logging.LoggerAdapter[logging.Logger]
    cancelled: CancelFlag
    run_id: int
    job_id: UUID

    @property
    def connection(self) -> Connection:
        return self.lend()


TaskFunction = Callable[[TaskRun], Any]


class TaskKinds(Registry[TaskFunction]):
    """Task kinds by name. A function returns a result, or Done, Failed, Skip or RetryLater, as a handler does.
    Handed says that a launch that it asked for decides how the task run ends.

    The policy is a handler's, too: None as max_attempts means that what raises is not tried again. timeout_seconds has
    no effect, since a transaction can't be left to itself.

    together: tasks of the kind that are due at once may be executed one after the other in one transaction, which is
    many times faster for thousands. Such a kind is quick (all wait for each), leaves the session as it found it, and
    never ends the transaction. Where that is rolled back, all of them are executed again, one by one.
    """

    def register(
        self,
        kind: str,
        *,
        max_attempts: int | None = None,
        backoff_seconds: float = 10.0,
        backoff_max_seconds: float = 3600.0,
        timeout_seconds: float | None = None,
        together: bool = False,
    ) -> Callable[[TaskFunction], TaskFunction]:
        """As every registry's; `together` is explained above."""
        policy = Policy(max_attempts, backoff_seconds, backoff_max_seconds, timeout_seconds)
        check_policy(kind, policy)

        def add(function: TaskFunction) -> TaskFunction:
            self.add(Registered(kind, function, policy, together))
            return function

        return add


def load_task_kinds(spec: str, own: TaskKinds) -> TaskKinds:
    """A new registry of `own` kinds and those that `spec` names, as `load_handlers` does for handlers."""
    return load_registry("SUMACLOCK_TASK_KINDS", spec, own)
