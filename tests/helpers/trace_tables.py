"""Traces written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

Line = tuple[int, int, int, int, float, float]
"""actor, nth, phase (below 0: not trained on), version, and when the row began and was made."""


def trace_table(length: int, lines: Sequence[Line], rows_per_group: int = 1) -> pd.DataFrame:
    """Return rows of one version each, which are trained on in the order of their actors."""
    return pd.DataFrame(
        [
            {
                "row": i,
                "group": i // rows_per_group,
                "actor": actor,
                "nth": nth,
                "fate": "trained" if phase >= 0 else "queued",
                "phase": phase,
                "place": actor if phase >= 0 else -1,
                "versions": [version],
                "ends": [length],
                "began_at": began,
                "made_at": made,
                "queued_at": made,
                "trained_at": np.nan,
            }
            for i, (actor, nth, phase, version, began, made) in enumerate(lines)
        ]
    )
