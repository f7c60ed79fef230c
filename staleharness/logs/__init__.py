"""Lag as real systems log it: one file, and the column with the lag.

`lag_columns` lists the columns of systems; `log_files` reads CSV, JSON and TensorBoard's event files piece by piece as
rows of numbers (`json_and_event_readers`); `lag_log` counts them in bounded memory (`log_statistics`) and reads traces.
"""
