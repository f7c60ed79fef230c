"""Resources of a run and how many fit on a machine; no Ray needed."""

from __future__ import annotations

import pytest

from staleharness.running.plan import plan
from staleharness.running.ray_connection import DEFAULT_MEMORY, RunResources, check_machine, machine_problem, resources
from staleharness.running.runner_interface import ResourceRequest, resource_request
from staleharness.study import sweep_request

GB = 10**9


@pytest.mark.parametrize(
    ("takes", "has", "runs"),
    [
        (RunResources(1, 0.0, GB), {"CPU": 8.0, "memory": 64e9}, 8),
        (RunResources(4, 0.0, GB), {"CPU": 7.0, "memory": 64e9}, 1),
        (RunResources(1, 0.0, 3 * GB), {"CPU": 8.0, "memory": 8e9}, 2),
        (RunResources(1, 1 / 3, GB), {"CPU": 8.0, "GPU": 2.0, "memory": 64e9}, 6),
        (RunResources(1, 1.0, GB), {"CPU": 8.0, "GPU": 2.0, "memory": 64e9}, 2),
        (RunResources(1, 1.0, GB), {"CPU": 8.0, "memory": 64e9}, 0),
        (RunResources(1, 0.0, GB), {"memory": 64e9}, 0),  # a head that is to carry out nothing
    ],
)
def test_how_many_runs_a_machine_has_room_for(takes: RunResources, has: dict[str, float], runs: int) -> None:
    assert takes.fit(has) == runs


def test_a_wider_share_is_at_most_a_machine() -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0, "memory": 3e9}}, {"Alive": False, "Resources": {"CPU": 64.0}}]
    takes = RunResources(1, 0.0, GB)
    assert takes.actor_options(1, nodes) == {"num_cpus": 1, "memory": GB}
    assert takes.actor_options(8, nodes) == {"num_cpus": 3, "memory": 3 * GB}
    gpus = [{"Alive": True, "Resources": {"CPU": 8.0, "memory": 64e9, "GPU": 1.0}}]
    assert RunResources(1, 0.25, GB).actor_options(2, gpus) == {"num_cpus": 2, "memory": 2 * GB, "num_gpus": 0.5}


def test_what_is_asked_for_is_what_it_takes() -> None:
    assert resources(ResourceRequest(threads=2)) == RunResources(2, 0.0, DEFAULT_MEMORY)
    assert resources(ResourceRequest(device="cuda")) == RunResources(1, 1.0, DEFAULT_MEMORY)
    assert resources(ResourceRequest(device="cuda", runs_per_gpu=4, memory=GB // 2)) == RunResources(1, 0.25, GB // 2)
    assert str(resources(ResourceRequest(device="cuda", runs_per_gpu=4))) == "1 core, 0.25 of a GPU, 1 GB"


@pytest.mark.parametrize(("text", "size"), [("2G", 2 * GB), ("1.5gb", 1.5 * GB), ("800M", 8e8), ("2000000000", 2 * GB)])
def test_memory_is_read_as_people_write_it(text: str, size: float) -> None:
    (run,) = plan(sweep_request(env="bit-chain", algo="seq_is", seeds="1")).runs
    assert resource_request(run.spec, None, None, text).memory == size


def test_a_machine_says_what_it_lacks(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("staleharness.running.ray_connection.VISIBLE", 0.0)
    (tmp_path / ".probe.00000000").touch()
    assert machine_problem(*check_machine(str(tmp_path / ".probe.00000000")), tmp_path) == ""
    assert "does not see OUT=" in machine_problem(
        *check_machine(str(tmp_path / "absent" / ".probe.00000000")), tmp_path
    )
    assert "another version of staleharness" in machine_problem(True, "0123", tmp_path)
