"""Lag as real systems log it: one file, and the column with the lag.

`framework_lag_metrics` lists the columns of systems; `log_table` reads CSV, JSON and TensorBoard's event files piece by
piece as rows of numbers (`json_and_event_readers`); `lag_log_reader` counts them, or the lags of a trace, in bounded
memory (`log_statistics`).
"""
