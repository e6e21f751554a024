"""What people look at: statements in SQL, tables in pandas, pictures in matplotlib. Knows nothing of Dagster."""
