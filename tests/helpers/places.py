"""Folders of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the checkout
HELPERS = Path(__file__).resolve().parent
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"  # the real dataset, where it is there
