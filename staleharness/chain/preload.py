"""What every run on chains loads, loaded once in the fork server: a run takes less than reading these does."""

import pandas  # noqa: F401 (with pyarrow, what a run is written down with)
import pyarrow.parquet  # noqa: F401

from . import simulation  # noqa: F401
