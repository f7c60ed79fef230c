"""Ids of runs whose method gained or lost an option."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from edited_plugins import edit_method

from staleharness.base.plugins import Registry
from staleharness.errors import UserError
from staleharness.lag import LagModel
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.run_identity import read_stored, run_id
from staleharness.spec import later
from staleharness.study import sweep_request
from staleharness.task import find_env

FAMILY = find_env("Hopper-v5")[1]
FIELD = "    anchor: Literal["
LOSS = "        return PolicyLoss("
USE = f"        if self.penalty:\n            objective = objective - self.penalty\n{LOSS}"
IMPORT = ("from staleharness.batch", "from staleharness.spec import later\nfrom staleharness.batch")


def plan_run(text: str = "ppo_clip") -> PlannedRun:
    (run,) = plan(sweep_request(env="Hopper", algo=text, seeds="1")).runs
    return run


def grow(folder: Path, patch: pytest.MonkeyPatch, default: float) -> None:
    field = f"    penalty: float = later({default}, before=0.0)\n{FIELD}"
    edit_method("ppo_clip", folder, patch, IMPORT, (FIELD, field), (LOSS, USE))


def test_a_method_option_added_later_leaves_the_id_at_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = plan_run()
    grow(tmp_path, monkeypatch, 0.0)
    now = plan_run()
    assert now.spec.hyper == {**earlier.spec.hyper, "penalty": 0.0}, "records say it"
    assert (now.run_id, now.label) == (earlier.run_id, earlier.label)
    other = plan_run("ppo_clip[penalty=0.5]")
    assert other.run_id != earlier.run_id and other.label == "ppo_clip[penalty=0.5]"


def test_a_default_away_from_before_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = plan_run()
    grow(tmp_path, monkeypatch, 0.5)
    assert plan_run().run_id != earlier.run_id and plan_run().label == "ppo_clip[penalty=0.5]"
    assert plan_run("ppo_clip[penalty=0]").run_id == earlier.run_id
    assert plan_run("ppo_clip[penalty=0]").label == earlier.label
    stored, family = read_stored(earlier.spec.to_dict())
    assert stored.hyper["penalty"] == 0.0 and run_id(stored, family) == earlier.run_id
    assert run_id(earlier.spec, family) != earlier.run_id, "a job planned earlier would run with the default"


def test_a_removed_option_is_read_at_its_constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = plan_run()
    removed = (FIELD, f'    retired = {{"soft": False}}\n{FIELD}')
    edit_method("ppo_clip", tmp_path, monkeypatch, removed)
    hyper = {**earlier.spec.hyper, "soft": False}
    assert read_stored({**earlier.spec.to_dict(), "hyper": hyper})[0] == earlier.spec
    with pytest.raises(UserError, match="soft=True is no longer supported; soft is always False"):
        read_stored({**earlier.spec.to_dict(), "hyper": {**hyper, "soft": True}})


def test_a_removed_option_stays_in_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir(), after.mkdir()
    edit_method("ppo_clip", before, monkeypatch, (FIELD, f"    soft: bool = False\n{FIELD}"))
    earlier = plan_run().spec
    monkeypatch.setattr("staleharness.running.run_identity.source_hash", lambda *_: "renamed by move_ids.py")
    name = run_id(earlier, FAMILY)
    edit_method("ppo_clip", after, monkeypatch, (FIELD, f'    retired = {{"soft": False}}\n{FIELD}'))
    assert run_id(read_stored(earlier.to_dict())[0], FAMILY) == name


def test_an_edited_method_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = plan_run()
    edit_method("ppo_clip", tmp_path, monkeypatch, (LOSS, f"        objective = objective * 2\n{LOSS}"))
    assert plan_run().run_id != earlier.run_id


def test_a_lag_option_added_later_has_before_as_its_default() -> None:
    registry: Registry[type[LagModel]] = Registry("lags", LagModel)

    @registry.register("mine")
    @dataclass(frozen=True)
    class Mine(LagModel):
        shift: int = later(1, before=0)

    with pytest.raises(UserError, match="the default of shift must equal before=0"):
        Mine.check_class("here")
