"""The sensor `alerts`: failures go to a webhook."""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from sumaclock_dagster.defs.resources import Sumaclock
from sumaclock_dagster.queue.workers import read_clock

PAUSE_SECONDS = 60.0
OFF = "Off. Set SUMACLOCK_ALERT_WEBHOOK to the URL of a Slack-compatible webhook, and restart the code server."


@dg.sensor(
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Posts new failed runs and task runs, and checks that began to fail, to SUMACLOCK_ALERT_WEBHOOK: "
    "grouped, at most once a minute, nothing twice. What a failing webhook did not take is posted later. From when it "
    "is switched on; launches nothing.",
)
def alerts(context: dg.SensorEvaluationContext, sumaclock: dg.ResourceParam[Sumaclock]) -> dg.SkipReason:
    webhook = sumaclock.settings.alert_webhook
    if webhook is None:
        return dg.SkipReason(OFF)
    from sumaclock_dagster.reports.alerts import Told, compose, new_failures, remember
    from sumaclock_dagster.reports.webhook import post_text

    with sumaclock.connect("sensor") as conn:
        now = read_clock(conn)
        told = Told.loads(context.cursor, now)
        # A clock that was set back must not keep alerts waiting.
        if 0 <= now - told.posted_at < PAUSE_SECONDS:
            return dg.SkipReason("Posted within the last minute.")
        failures = new_failures(conn, told)
    failing = _failing_checks(context, told.checks)
    fresh = {name: text for name, text in failing.items() if name not in told.checks}
    if failures or fresh:
        refused = post_text(webhook.get_secret_value(), compose(failures, fresh))
        if refused:
            context.log.warning(f"The webhook of SUMACLOCK_ALERT_WEBHOOK did not take the alert: {refused}.")
            return dg.SkipReason(f"The webhook did not take the alert: {refused}. It is posted again, nothing is lost.")
    posted = bool(failures or fresh)
    context.update_cursor(remember(told, failures, list(failing), now, posted=posted).dumps())
    return dg.SkipReason(
        f"Posted {len(failures)} failed runs and {len(fresh)} failed checks." if posted else "Nothing new."
    )


def _failing_checks(context: dg.SensorEvaluationContext, told: tuple[str, ...]) -> dict[str, str]:
    """The checks whose newest evaluation failed, with what it said. One that is being evaluated is as it was."""
    assert context.repository_def is not None  # noqa: S101  (the daemon and build_sensor_context set it)
    keys = list(context.repository_def.asset_graph.asset_check_keys)
    newest = context.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    failing = {}
    for key, record in sorted(newest.items(), key=lambda item: item[0].to_user_string()):
        name = key.to_user_string()
        if record.status == AssetCheckExecutionRecordStatus.FAILED:
            evaluation = record.event.asset_check_evaluation if record.event else None
            failing[name] = (evaluation.description if evaluation else None) or "It failed."
        elif record.status == AssetCheckExecutionRecordStatus.PLANNED and name in told:
            failing[name] = ""
    return failing
