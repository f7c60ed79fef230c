"""Figures in less time, for tests that do not look at where their parts stand."""

from __future__ import annotations

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from staleharness.figures import plot_layout


def draw_quickly(patch: pytest.MonkeyPatch) -> None:
    """Axes stay where they are first put, and fonts of a PDF are not cut to size, which takes half of the time."""
    patch.setitem(plot_layout.SETTINGS, "pdf.fonttype", 3)
    patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
