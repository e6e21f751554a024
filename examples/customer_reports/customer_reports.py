"""A report for each customer: `orders` are ingested, `customer_report` sums them up. One partition a customer.

Nothing in the assets knows of schedules: who gets a report and when is a row that your app makes at run time.
"""

import random
from collections import Counter
from typing import Any

import dagster as dg

from sumaclock_dagster import with_sumaclock

customers = dg.DynamicPartitionsDefinition(name="customers")
PRODUCTS = ("paper", "ink", "toner")


class Period(dg.Config):
    """The week that is reported, as 2026-W49."""

    week: str


@dg.asset(partitions_def=customers, group_name="customers")
def orders(context: dg.AssetExecutionContext, config: Period) -> list[dict[str, Any]]:
    """The orders of one customer in one week. Here they are invented; yours come from somewhere."""
    invented = random.Random(f"{context.partition_key} {config.week}")  # noqa: S311
    found = [
        {"week": config.week, "product": invented.choice(PRODUCTS), "amount": invented.randint(5, 500)}
        for _ in range(invented.randint(10, 40))
    ]
    context.add_output_metadata({"orders": len(found), "week": config.week})
    return found


@dg.asset(partitions_def=customers, group_name="customers")
def customer_report(context: dg.AssetExecutionContext, orders: list[dict[str, Any]]) -> str:
    """What the customer is sent."""
    sums = Counter[str]()
    for order in orders:
        sums[order["product"]] += order["amount"]
    lines = "\n".join(f"| {product} | {amount} |" for product, amount in sums.most_common())
    report = f"# {context.partition_key}, {orders[0]['week']}\n\n| product | amount |\n|---|---|\n{lines}\n"
    context.add_output_metadata({"report": dg.MetadataValue.md(report), "amount": sum(sums.values())})
    return report


@dg.definitions
def defs() -> dg.Definitions:
    """Your definitions, and everything of sumaclock in the same code location."""
    return with_sumaclock(dg.Definitions(assets=[orders, customer_report], executor=dg.in_process_executor))
