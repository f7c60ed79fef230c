"""Execution of runs, from the plan to the published record: workers, runners, checkpoints."""
