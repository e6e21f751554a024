"""What people see and do in Dagster's UI. One `sumaclock up` with the example project serves all tests here."""
