"""The threads that execute handlers."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Container
from queue import SimpleQueue
from time import monotonic
from typing import Any

from sumaclock_dagster.handlers import Handler, HandlerRun, Handlers
from sumaclock_dagster.model import Done, Failed, Handed, Outcome, RetryLater, Skip
from sumaclock_dagster.storable import clean_text, error_text, result_json, storable_outcome
from sumaclock_dagster.worker.held import HeldRun, HeldRuns

OUTCOMES = (Done, Failed, RetryLater, Skip, Handed)
NOTHING = Done()
# PostgreSQL writes jsonb without white space around it, which `json.loads` looks for.
read_json = json.JSONDecoder().raw_decode
log = logging.getLogger("sumaclock.handler")


class Hands:
    """Threads that take held runs in turn, execute their handlers and hand each outcome to `ended`.

    Runs of a kind that has a handler of many are executed together, as many of them as one claim brought; those that
    it declines go to the kind's handler one by one.

    A thread can't be stopped from outside: one whose handler timed out is given up and replaced. One that executes a
    lost claim keeps the run held, so that it counts as busy, and calls `free` when it is done.
    """

    def __init__(
        self,
        threads: int,
        handlers: Handlers,
        held: HeldRuns,
        ended: Callable[[HeldRun], None],
        free: Callable[[], None],
        no_handler_message: str,
        result_max_bytes: int,
    ) -> None:
        self._threads = threads
        self._handlers = handlers
        self._held = held
        self._ended = ended
        self._free = free
        self._no_handler_message = no_handler_message
        self._result_max_bytes = result_max_bytes
        # What one thread takes at once: a run, or several for a handler of many.
        self._todo: deque[list[HeldRun]] = deque()
        self._idle: deque[None] = deque()
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    def start(self) -> None:
        for _ in range(self._threads):
            self.add_thread()

    def add_thread(self) -> None:
        # Daemon threads: a handler that never returns must not keep the worker's process alive.
        threading.Thread(target=self._work, name="sumaclock-hand", daemon=True).start()

    def give(self, runs: list[HeldRun], fast: bool) -> None:
        """Queue runs for execution. Fast handlers do best in one thread: more of them only fight for the interpreter;
        `hurry` wakes the others when that one turns out to be slow."""
        parts = _parts(runs, self._handlers.of_many)
        self._todo.extend(parts)
        self._wake(1 if fast else len(parts))

    def execute(self, held: HeldRun) -> None:
        """Execute a run in the thread that calls."""
        if self._is_mine(held):
            self._execute(held)

    def hurry(self) -> None:
        """Wake the idle threads for what still waits to be executed."""
        self._wake(len(self._todo))

    def take_back(self) -> list[HeldRun]:
        """Take away every run whose execution has not begun."""
        taken = []
        while self._todo:
            try:
                taken += self._todo.popleft()
            except IndexError:
                break
        return taken

    def waiting_since(self) -> float:
        """When the run that is next to be executed was claimed (monotonic seconds); infinity when none waits."""
        try:
            return self._todo[0][0].batch.claimed
        except IndexError:
            return float("inf")

    def stop(self) -> None:
        """Let every thread end after what it is executing."""
        for _ in range(self._threads):
            self._tokens.put(False)

    def _wake(self, most: int) -> None:
        for _ in range(most):
            try:
                self._idle.pop()
            except IndexError:
                return
            self._tokens.put(True)

    def _work(self) -> None:
        while True:
            try:
                part = self._todo.popleft()
            except IndexError:
                if not self._rest():
                    return
                continue
            if len(part) == 1:
                self.execute(part[0])
            else:
                self._execute_together([held for held in part if self._is_mine(held)])

    def _is_mine(self, held: HeldRun) -> bool:
        """Whether nobody else has ended the run. Lets go of it otherwise."""
        if self._held.is_open(held):
            return True
        self._let_go(held)
        return False

    def _let_go(self, held: HeldRun) -> None:
        self._held.forget(held)
        self._free()

    def _rest(self) -> bool:
        """Sleep until there is something to do; False at the end. A run that came between the look and the sleep
        finds no idle thread to wake, so look once more after being counted as idle."""
        self._idle.append(None)
        if self._todo:
            try:
                self._idle.pop()
            except IndexError:
                return self._tokens.get()
            return True
        return self._tokens.get()

    def _execute(self, held: HeldRun) -> None:
        run = held.run
        registered = self._handlers.find(run.kind)
        held.started = monotonic()
        if not run.wanted:
            outcome: Outcome = Skip("The job was paused after this run was fired.")
        elif registered is None:
            outcome = storable_outcome(Failed(self._no_handler_message.replace("{kind}", run.kind)))
        else:
            timeout = registered.policy.timeout_seconds
            held.deadline = None if timeout is None else held.started + timeout
            outcome = self._handle(held, registered.function)
        self._end(held, outcome)

    def _end(self, held: HeldRun, outcome: Outcome) -> None:
        if self._held.end(held):
            held.ended = monotonic()
            held.outcome = outcome
            self._ended(held)
        else:
            self._let_go(held)

    def _handle(self, held: HeldRun, function: Handler) -> Outcome:
        try:
            payload = read_json(held.run.payload)[0]
        except Exception as error:  # noqa: BLE001  (jsonb holds numbers and depths that Python refuses)
            return Failed(f"The payload can't be read: {type(error).__name__}: {clean_text(str(error), 1000)}")
        try:
            outcome = self._storable(held, function(_handler_run(held, payload)))
        except BaseException as error:  # noqa: BLE001  (SystemExit and KeyboardInterrupt end the run, not the thread)
            held.raised = True
            outcome = Failed(error_text(error))
        return outcome

    def _storable(self, held: HeldRun, value: Any) -> Outcome:
        if value is None:
            return NOTHING
        outcome = storable_outcome(value) if isinstance(value, OUTCOMES) else Done(value)
        if isinstance(outcome, Done):
            held.result = result_json(outcome.result, self._result_max_bytes)
        return outcome

    def _execute_together(self, part: list[HeldRun]) -> None:
        """By the handler of many. What it declines, or all of them where it raises, is executed one by one."""
        started = monotonic()
        for held in part:
            held.started = started
        kind = part[0].run.kind
        outcomes: list[Outcome | None] = [None] * len(part)
        try:
            runs = [_handler_run(held, read_json(held.run.payload)[0]) for held in part]
            values = self._handlers.of_many[kind](runs)
            outcomes = [
                None if value is None else self._storable(held, value) for held, value in zip(part, values, strict=True)
            ]
        except BaseException as error:  # noqa: BLE001  (as for one run)
            said = error_text(error).partition("\n")[0]
            log.warning("%d runs of kind %s are executed one by one: %s", len(part), kind, said)
        declined = [[held] for held, outcome in zip(part, outcomes, strict=True) if outcome is None]
        self._todo.extendleft(reversed(declined))
        self._wake(len(declined))
        for held, outcome in zip(part, outcomes, strict=True):
            if outcome is not None:
                self._end(held, outcome)


def _parts(runs: list[HeldRun], together: Container[str]) -> list[list[HeldRun]]:
    """The runs in order, each by itself, except that those of a kind in `together` are with the first of it."""
    parts: list[list[HeldRun]] = []
    by_kind: dict[str, list[HeldRun]] = {}
    for held in runs:
        known = by_kind.get(held.run.kind)
        if known is not None and held.run.wanted:
            known.append(held)
            continue
        parts.append([held])
        if held.run.kind in together and held.run.wanted:
            by_kind[held.run.kind] = parts[-1]
    return parts


def _handler_run(held: HeldRun, payload: Any) -> HandlerRun:
    run = held.run
    return HandlerRun(
        id=run.id,
        job_id=run.job_id,
        kind=run.kind,
        organization_id=run.organization_id,
        user_id=run.user_id,
        payload=payload,
        scheduled_at=run.scheduled_at,
        trigger=run.trigger,
        attempt=run.attempt,
        deadline=held.deadline,
        log=RunLog(log, {"run_id": run.id, "kind": run.kind}),
        cancelled=held.cancelled,
    )


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines begin with the run's id and kind."""

    def process(self, msg: object, kwargs: object) -> tuple[object, object]:  # type: ignore[override]
        extra = self.extra or {}
        return f"run {extra.get('run_id')} ({extra.get('kind')}): {clean_text(str(msg), 10_000)}", kwargs
