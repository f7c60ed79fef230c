"""Lag as real systems log it: one file, and the column with the lag.

`lag_columns` lists the columns of systems; `log_files` reads CSV, JSON (`json_stream`) and TensorBoard's event files
(`event_file`) as rows of numbers, piece by piece; `lag_log` counts them in bounded memory (`log_statistics`), and reads
traces.
"""
