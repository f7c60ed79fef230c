"""No result moves unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cases import cases
from needs import has_compiler
from traces import FILE, TOLERANCE, made_with, sketch_distance, trace, write_inputs

RECORDED = json.loads(FILE.read_text())


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_inputs(folder)
    return folder


@pytest.mark.parametrize("case", cases())
def test_the_golden_trace_has_not_moved(case: str, model: Path) -> None:
    if "/native" in case and not has_compiler():
        pytest.skip("needs a C++ compiler, which is not installed here")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found = trace(case, model)
    torch.set_num_threads(before)
    hint = "if meant, raise MATHS_VERSION or name it in corrections(), and run `make golden ARGS=--write`"
    assert sketch_distance(found["sketch"], RECORDED["sketches"][case]) < TOLERANCE, (
        f"this change moves results: {hint}"
    )
    for maker in RECORDED["makers"]:
        if maker["made_with"] == made_with() and case in maker["hashes"]:
            assert found["hashes"] == maker["hashes"][case], f"this change moves bits: {hint}"


def test_every_trace_is_of_a_run_that_learns() -> None:
    assert set(RECORDED["sketches"]) == set(cases())
    for case, sketch in RECORDED["sketches"].items():
        lengths = [length for length, *_ in sketch]
        assert len(set(lengths)) == len(lengths) > 2 and min(lengths) > 0, case
