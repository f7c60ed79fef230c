"""Lag as real systems log it: one file, and which of its columns is the lag.

`systems` knows names of columns; `files` reads CSV, JSON (`json_text`) and TensorBoard's event files (`event_file`) as
rows of numbers, piece by piece; `tally` counts them in bounded memory; `lag_log` puts them together, and takes traces.
"""
