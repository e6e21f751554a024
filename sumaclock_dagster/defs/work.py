"""The job `work`: one Dagster run is one worker, from its registration to the end of its life."""

import logging
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import dagster as dg
from dagster._utils.interrupts import capture_interrupts, check_captured_interrupt

from sumaclock_dagster.defs.metadata import failure_line, observation
from sumaclock_dagster.defs.resources import OWN_IO_KEY, Sumaclock
from sumaclock_dagster.garbage import rare_collections
from sumaclock_dagster.model import FlushReport, SumaclockError
from sumaclock_dagster.worker import Worker, WorkerConfig

LOGGER = "sumaclock"
INTERRUPT_POLL_SECONDS = 0.25
STOP_SLACK_SECONDS = 10.0
TAG_SECONDS = 60.0


class WorkConfig(dg.Config):
    """worker_id: as the sensor requested it. code_version: of the code server that asked. Neither is needed."""

    worker_id: int | None = None
    code_version: str | None = None


@dg.op(
    out=dg.Out(
        dg.Nothing, io_manager_key=OWN_IO_KEY, description="What it did is in the observations of the asset cron_runs."
    ),
    description="A worker: claims due runs and executes their handlers in threads, until its life is over, it is no "
    "longer needed, or it is terminated. Terminating is safe: what it could not finish goes back to the queue.",
)
def claim_and_execute(
    context: dg.OpExecutionContext, config: WorkConfig, sumaclock: dg.ResourceParam[Sumaclock]
) -> None:
    # Nothing may raise in the middle of the worker's bookkeeping: an interrupt is noted, and asked for between waits.
    with capture_interrupts(), rare_collections(), _log_to_stderr() as log:
        worker = Worker(
            WorkerConfig.from_settings(
                sumaclock.settings,
                worker_id=config.worker_id,
                dagster_run_id=context.run_id,
                code_version=config.code_version or sumaclock.code_version,
            ),
            sumaclock.handlers,
            log,
        )
        worker.start()
        journal = Journal(context, log, worker.worker_id)
        interrupted = _wait_for_end(worker, journal, sumaclock)
        journal.close(worker.take_report(), worker.end_reason)
        cancelled = interrupted and _is_cancelling(context)
    if worker.failure is not None:
        raise SumaclockError(f"The worker broke: {worker.end_reason}. Its runs are released.") from worker.failure
    if cancelled:
        raise dg.DagsterExecutionInterruptedError("The worker was terminated; its unfinished runs went back.")


@dg.job(
    name="work",
    executor_def=dg.in_process_executor,
    tags={"dagster/max_retries": "0", "dagster/priority": "10"},
    description="A worker. The sensor pending_runs launches it; launched by hand it is one worker more.",
)
def work() -> None:
    claim_and_execute()


def _wait_for_end(worker: Worker, journal: "Journal", sumaclock: Sumaclock) -> bool:
    """Report every few seconds until the worker has ended. Returns whether it was interrupted."""
    settings = sumaclock.settings
    interrupted, give_up_at = False, float("inf")
    report_at = monotonic() + settings.observe_seconds
    while not worker.wait(INTERRUPT_POLL_SECONDS) and monotonic() < give_up_at:
        if check_captured_interrupt() and not interrupted:
            interrupted = True
            give_up_at = monotonic() + settings.grace_seconds + STOP_SLACK_SECONDS
            worker.stop("terminated")
        if monotonic() >= report_at:
            journal.write(worker.take_report())
            report_at = monotonic() + settings.observe_seconds
    return interrupted or check_captured_interrupt()


class Journal:
    """Writes what the worker did into Dagster, and keeps the totals. A Dagster storage that is down costs
    observations, never the worker: the rows in cron_runs are the record."""

    def __init__(self, context: dg.OpExecutionContext, log: logging.Logger, worker_id: int) -> None:
        self._context = context
        self._log = log
        self._worker_id = worker_id
        self._totals = Counter[str]()
        self._tagged_at = 0.0

    def write(self, report: FlushReport | None) -> None:
        if report is None:
            return
        for (_, outcome), runs in report.counts.items():
            self._totals[outcome] += runs
        with self._tolerating_storage():
            self._context.log_event(observation(report))
            # Each event is written when it is logged; what the context keeps of it would only grow for an hour.
            deque(self._context.consume_events(), maxlen=0)
            for line in report.failures:
                self._context.log.error(failure_line(line))
            failed = sum(runs for (_, outcome), runs in report.counts.items() if outcome == "failed")
            if failed > len(report.failures):
                self._context.log.error(f"{failed - len(report.failures)} more runs failed: see the table cron_runs.")
            if monotonic() > self._tagged_at + TAG_SECONDS:
                self._tag({})

    def close(self, report: FlushReport | None, end_reason: str) -> None:
        """Write the last report, and what the worker did in all."""
        self.write(report)
        totals = dict(sorted(self._totals.items()))
        with self._tolerating_storage():
            self._tag({"sumaclock/ended": end_reason})
            summary = ", ".join(f"{runs} {outcome}" for outcome, runs in totals.items()) or "no runs"
            self._context.log.info(f"The worker ended ({end_reason}): {summary}.")
            self._context.add_output_metadata({"ended": end_reason, **totals})

    def _tag(self, more: dict[str, str]) -> None:
        """Totals in tags, so that the list of Dagster runs shows them."""
        self._tagged_at = monotonic()
        totals = {f"sumaclock/{outcome.replace(' ', '_')}": str(runs) for outcome, runs in self._totals.items()}
        tags = {"sumaclock/worker": str(self._worker_id), "sumaclock/done": "0", **totals, **more}
        self._context.instance.add_run_tags(self._context.run_id, tags)

    @contextmanager
    def _tolerating_storage(self) -> Iterator[None]:
        try:
            yield
        except Exception:  # noqa: BLE001  (whichever storage is configured raises what it likes)
            self._log.exception("Dagster's storage refused an event. The runs are not affected.")


def _is_cancelling(context: dg.OpExecutionContext) -> bool:
    """Whether somebody asked Dagster to terminate this Dagster run. A code server that shuts down interrupts too, and
    a worker that ended in good order for that is a success."""
    try:
        run = context.instance.get_run_by_id(context.run_id)
    except Exception:  # noqa: BLE001  (as above)
        return True
    return run is None or run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)


@contextmanager
def _log_to_stderr() -> Iterator[logging.Logger]:
    """The worker's and the handlers' log lines go to stderr, which Dagster keeps as the step's output: an event a line
    would cost more than most handlers."""
    logger = logging.getLogger(LOGGER)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield logger.getChild("worker")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
