"""Launches: Dagster runs that runs of kind dagster ask for. Owns the statements on dagster_launches.

target: what a payload may name, and templates: what its texts may hold. requests: asking for a launch, and handing the
run over. progress: what becomes of it. graphql: launching in other code locations. handler: the kind for jobs.
"""

LAUNCHES_CHANNEL = "sumaclock_launches"
DAGSTER_KIND = "dagster"
