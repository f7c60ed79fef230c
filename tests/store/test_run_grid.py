"""Filters of runs: each alone, and all together."""

from __future__ import annotations

from typing import Any

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.store.run_selection import cell_filter, filter_runs
from staleharness.store.store import StoredRun


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    root = tmp_path_factory.mktemp("out")
    cells = [("vaco", "Hopper-v5", 1), ("vaco", "Hopper-v5", 8), ("spo", "Ant-v5", 8), ("spo N=4", "Hopper-v5", 8)]
    return [
        write_run(root, label, env=env, capacity=k, settings={"algorithm": label.partition(" ")[0], "epochs": 2 * k})
        for label, env, k in cells
    ]


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        ({}, [0, 1, 2, 3]),
        ({"k": 8}, [1, 2, 3]),
        ({"k": "1,8"}, [0, 1, 2, 3]),
        ({"env": "Ant"}, [2]),
        ({"env": "hopper-v5"}, [0, 1, 3]),
        ({"env": "Hopper-v4"}, []),
        ({"algo": "spo"}, [2, 3]),
        ({"algo": ["spo N=4"]}, [3]),
        ({"where": "epochs=2"}, [0]),
        ({"where": {"epochs": "16"}}, [1, 2, 3]),
        ({"env": "Hopper", "k": [8], "algo": ["vaco"], "where": "epochs=16"}, [1]),
        ({"env": "Hopper", "k": 1, "algo": "spo"}, []),
    ],
    ids=str,
)
def test_runs_are_those_that_every_filter_leaves(runs: list[StoredRun], asked: Any, places: list[int]) -> None:
    cells = {name: value for name, value in asked.items() if name != "where"}
    assert filter_runs(runs, cell_filter(**cells), asked.get("where")) == [runs[i] for i in places]


def test_a_setting_that_no_run_has_is_named(runs: list[StoredRun]) -> None:
    with pytest.raises(UserError, match="no run here has a setting 'epoch'; did you mean 'epochs'"):
        filter_runs(runs, cell_filter(), "epoch=2")
