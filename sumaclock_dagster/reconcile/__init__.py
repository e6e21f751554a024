"""Reconciliation: two places hold a schedule and can disagree, and these loops make them agree again.

drift: the one definition of a difference. sync: mends all of them. heartbeat: fires what the clock missed.
repair: what is left half-way, hourly.
"""
