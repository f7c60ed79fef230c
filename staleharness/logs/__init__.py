"""Lag as real systems log it: one file, and which of its columns is the lag.

`systems` knows names of columns; `files` reads CSV, JSON lines and TensorBoard's event files as columns, the last with
`event_file`; `lag_log` puts them together, and takes traces too.
"""
