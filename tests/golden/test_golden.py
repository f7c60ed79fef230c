"""No result moves unnoticed."""

from __future__ import annotations

import json

import pytest
import torch
from traces import ALGORITHMS, FILE, made_with, trace


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_golden_trace_has_not_moved(algorithm: str) -> None:
    recorded = json.loads(FILE.read_text())
    if recorded["made_with"] != made_with():
        pytest.skip(f"bits hold within one fingerprint; the traces were made with {recorded['made_with']}")
    torch.set_num_threads(1)
    assert trace(algorithm) == recorded["traces"][algorithm], (
        "this change moves results: if it is meant to, raise MATHS_VERSION, run tests/golden/traces.py --write, "
        "and attach the table before and after"
    )
