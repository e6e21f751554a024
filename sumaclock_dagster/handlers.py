"""Registries: which function executes which kind, and by what policy. That of handlers, and what all have in common."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from sumaclock_dagster.model import Outcome, Policy, SumaclockError
from sumaclock_dagster.system_jobs import SystemFunction, SystemJob, checked

KIND = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class CancelFlag:
    """Says that nobody waits for a run's outcome any more: of a `threading.Event`, what a handler needs.

    Each run has one and few wait on theirs, so the Event, which costs more than all else that is made for a run, is
    made for those who wait.
    """

    __slots__ = ("_event", "_set")
    _making = threading.Lock()

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def set(self) -> None:
        self._set = True
        with self._making:
            event = self._event
        if event is not None:
            event.set()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for `timeout` seconds. Returns whether it is set."""
        with self._making:
            if self._set:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout)


@dataclass(slots=True)
class HandlerRun:
    """What a handler is given.

    scheduled_at: the minute (UTC) that the run was meant for.
    trigger: who fired it: clock, manual, catch_up, or request (a change that a worker is to carry out).
    attempt: 1 for the first.
    idempotency_key: the same for every attempt of this run and for no other run.
    deadline: `time.monotonic()` seconds at which the run times out, or None.
    cancelled: set when the run timed out, its claim was lost or its worker stops; a long handler should look at it.
    log: a logger whose lines carry the run's id.
    """

    id: int
    job_id: UUID
    kind: str
    organization_id: str
    user_id: str
    payload: Any
    scheduled_at: datetime
    trigger: str
    attempt: int
    deadline: float | None
    log: logging.LoggerAdapter[logging.Logger]
    cancelled: CancelFlag = field(default_factory=CancelFlag)

    @property
    def idempotency_key(self) -> str:
        return f"cron_run:{self.id}"


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Registered(Generic[F]):
    kind: str
    function: F
    policy: Policy
    # Of task kinds alone: see TaskKinds.
    together: bool = False


class Registry(Mapping[str, Registered[F]]):
    """Functions by kind. Built in a function and passed down; there is no global registry."""

    def __init__(self) -> None:
        self._by_kind: dict[str, Registered[F]] = {}

    def register(
        self,
        kind: str,
        *,
        max_attempts: int | None = None,
        backoff_seconds: float = 10.0,
        backoff_max_seconds: float = 3600.0,
        timeout_seconds: float | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function for `kind`, a stable string. Raises SumaclockError for a kind that is
        taken, a kind that is no plain name, or a policy out of bounds."""
        policy = Policy(max_attempts, backoff_seconds, backoff_max_seconds, timeout_seconds)
        check_policy(kind, policy)

        def add(function: F) -> F:
            self.add(Registered(kind, function, policy))
            return function

        return add

    def add(self, registered: Registered[F]) -> None:
        taken = self._by_kind.get(registered.kind)
        if taken is not None:
            raise SumaclockError(
                f"Kind '{registered.kind}' has two handlers: {_place(taken.function)} and "
                f"{_place(registered.function)}. Give one of them another kind."
            )
        self._by_kind[registered.kind] = registered

    def include(self, other: Registry[F]) -> None:
        """Add all that another registry holds. Raises SumaclockError for what both hold."""
        for registered in other.values():
            self.add(registered)

    def __getitem__(self, kind: str) -> Registered[F]:
        return self._by_kind[kind]

    def find(self, kind: str) -> Registered[F] | None:
        """What is registered for the kind, or None: `get`, which a Mapping makes of `[]`, without its price for each
        run."""
        return self._by_kind.get(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)


Handler = Callable[[HandlerRun], Any]
# Many runs of one kind; an outcome for each, or None where its handler is to execute it.
HandlerOfMany = Callable[[Sequence[HandlerRun]], Sequence[Outcome | None]]


class Handlers(Registry[Handler]):
    """Handlers by kind, and system jobs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.system_jobs: dict[str, SystemJob] = {}
        self.of_many: dict[str, HandlerOfMany] = {}

    def register_of_many(self, kind: str) -> Callable[[HandlerOfMany], HandlerOfMany]:
        """Let a worker give the decorated function all runs of `kind` that it claimed at once. Those for which it
        returns None, and all where it raises, go to the kind's handler. Raises SumaclockError where that is missing or
        has a time-out, which can't end one of many."""
        if kind not in self or self[kind].policy.timeout_seconds is not None:
            raise SumaclockError(f"Kind '{kind}' needs a handler without a time-out before it has one of many.")

        def add(function: HandlerOfMany) -> HandlerOfMany:
            self.of_many[kind] = function
            return function

        return add

    def system_job(self, name: str, *, every_seconds: int) -> Callable[[SystemFunction], SystemFunction]:
        """Let workers execute the decorated function once in each period. Raises SumaclockError for a name that is
        taken, a name that is no plain name, or a period out of bounds."""

        def add(function: SystemFunction) -> SystemFunction:
            self.add_system_job(checked(SystemJob(name, function, every_seconds)))
            return function

        return add

    def add_system_job(self, job: SystemJob) -> None:
        taken = self.system_jobs.setdefault(job.name, job)
        if taken is not job:
            raise SumaclockError(
                f"System job '{job.name}' exists twice: {_place(taken.function)} and {_place(job.function)}. "
                "Give one of them another name."
            )

    def include(self, other: Registry[Handler]) -> None:
        super().include(other)
        if isinstance(other, Handlers):
            self.of_many |= other.of_many
            for job in other.system_jobs.values():
                self.add_system_job(job)


R = TypeVar("R", bound=Registry[Any])


def load_handlers(spec: str, own: Handlers) -> Handlers:
    """A new registry of `own` handlers and of those that `spec` names ("package.module:attribute, ..."; the attribute
    is a Handlers or a function without arguments that returns one). Raises SumaclockError naming the entry at fault."""
    return load_registry("SUMACLOCK_HANDLERS", spec, own)


def load_registry(variable: str, spec: str, own: R) -> R:
    """As `load_handlers`, for any kind of registry. `variable`: the setting that holds `spec`, for errors."""
    merged = type(own)()
    merged.include(own)
    for text in filter(None, (part.strip() for part in spec.split(","))):
        where = f"{variable} entry '{text}'"
        found = load_attribute(where, text)
        registry = found() if callable(found) and not isinstance(found, type(own)) else found
        if not isinstance(registry, type(own)):
            raise SumaclockError(
                f"{where} is {type(registry).__name__}, not a sumaclock {type(own).__name__} registry."
            )
        merged.include(registry)
    return merged


def load_attribute(where: str, text: str) -> Any:
    """What `text` ("package.module:attribute") names. Raises SumaclockError that begins with `where`."""
    module_name, _, attribute = text.partition(":")
    if not module_name or not attribute:
        raise SumaclockError(f"{where} is not of the form package.module:attribute.")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise SumaclockError(f"{where}: cannot import {module_name}: {error}") from error
    except AttributeError as error:
        raise SumaclockError(f"{where}: {module_name} has no attribute '{attribute}'.") from error


def check_policy(kind: str, policy: Policy) -> None:
    if not KIND.fullmatch(kind):
        raise SumaclockError(f"Kind {kind!r} must be 1 to 100 letters, digits or _ . : - (for example 'invoice_due').")
    if policy.max_attempts is not None and not 1 <= policy.max_attempts <= 1000:
        raise SumaclockError(f"Kind '{kind}': max_attempts must be 1 to 1000, not {policy.max_attempts}.")
    if policy.timeout_seconds is not None and policy.timeout_seconds <= 0:
        raise SumaclockError(f"Kind '{kind}': timeout_seconds must be above 0, or None for no limit.")
    if policy.backoff_seconds < 0 or policy.backoff_max_seconds < policy.backoff_seconds:
        raise SumaclockError(f"Kind '{kind}': backoff_seconds must be 0 or more, and no more than backoff_max_seconds.")


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
