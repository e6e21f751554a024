"""What Dagster runs and shows. Thin: get the resource, call one core function, translate. No SQL here."""
