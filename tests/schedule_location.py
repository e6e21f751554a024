"""A user's code location for tests of `edit_schedules`, with settings from the environment."""

import dagster as dg

from sumaclock_dagster import with_sumaclock

days = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="Europe/Madrid")
customers = dg.DynamicPartitionsDefinition(name="customers")


class Invoice(dg.Config):
    month: str
    copies: int = 1


@dg.op
def write_invoice(context: dg.OpExecutionContext, config: Invoice) -> None:
    context.log.info(f"{config.copies} of {config.month}")


@dg.job
def invoices() -> None:
    write_invoice()


@dg.asset(partitions_def=customers)
def report() -> None: ...


@dg.asset(key_prefix="daily", partitions_def=days)
def sales() -> None: ...


@dg.asset
def totals() -> None: ...


@dg.definitions
def defs() -> dg.Definitions:
    return with_sumaclock(
        dg.Definitions(
            assets=[report, sales, totals, dg.AssetSpec("elsewhere")],
            jobs=[invoices, dg.define_asset_job("reports", selection=[report])],
        )
    )
