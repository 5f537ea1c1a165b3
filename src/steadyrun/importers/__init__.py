"""Run directories out of the logs that other tools wrote."""
