"""`mgpu smoke-test SCRIPT`: the user's own script runs for a few optimizer steps; facts of what each rank did."""
