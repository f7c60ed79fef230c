"""A kind of task says of itself how its runs are read; who reads them knows no kind by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results_helper import KINDS, write_run

from staleharness.base import plugins
from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.running.plan import plan
from staleharness.spec import RunSpec
from staleharness.statistics import aggregate as stats
from staleharness.statistics import scores
from staleharness.store.store import StoredRun
from staleharness.study import sweep_request
from staleharness.task import ENVS, Task, all_families

ONE_OF_EACH = {"control": "Hopper-v5", "language": "word-problems", "chain": "bit-chain"}


def runs_of(root: Path, *kinds: str, **given: Any) -> list[StoredRun]:
    return [write_run(root, kind=kind, env=ONE_OF_EACH.get(kind, kind), phases=3, **given) for kind in kinds]


def test_the_facts_of_a_kind_are_plain_data() -> None:
    returns = {"sampled": "sampled returns", "deterministic": "deterministic returns"}
    assert KINDS["control"].facts() == {
        "kind": "control",
        "unit": "environment steps",
        "measures": returns,
        "score": "sampled",
        "normalise": "minmax",
        "axes": {},
    }
    assert KINDS["language"].facts() == {
        "kind": "language",
        "unit": "optimiser steps",
        "measures": {"sampled": "sampled accuracy", "deterministic": "greedy accuracy"},
        "score": "deterministic",
        "normalise": "raw",
        "axes": {"N": "minibatches"},
    }
    assert KINDS["chain"].facts() == {
        "kind": "chain",
        "unit": "optimiser steps",
        "measures": {"sampled": "success probability", "deterministic": "greedy success"},
        "score": "sampled",
        "normalise": "raw",
        "axes": {"N": "minibatches"},
    }


def test_every_family_is_of_a_kind() -> None:
    assert {family.kind for family in all_families()} >= set(KINDS)


def test_a_family_of_no_kind_is_told_what_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    list(ENVS)
    monkeypatch.setattr(ENVS, "_classes", dict(ENVS._classes))

    @ENVS.register("kindless")
    class Kindless(Task):
        """Written when there was one kind."""

    with pytest.raises(UserError, match=r"Kindless in .*test_kinds.py does not define `kind`") as error:
        all_families()
    assert "ControlTask" in str(error.value) and plugins.source_file(Kindless) in str(error.value)


@pytest.mark.parametrize(
    ("kinds", "usual", "unit", "words"),
    [
        (["control"], ("sampled", "minmax"), "environment steps", ("sampled returns", "deterministic returns")),
        (["language"], ("deterministic", "raw"), "optimiser steps", ("sampled accuracy", "greedy accuracy")),
        (["chain"], ("sampled", "raw"), "optimiser steps", ("success probability", "greedy success")),
        (
            ["control", "language"],
            ("sampled", "minmax"),
            "environment steps or optimiser steps",
            ("sampled returns", "deterministic returns"),
        ),
        (["language", "chain"], ("sampled", "minmax"), "optimiser steps", ("sampled returns", "deterministic returns")),
        ([], ("sampled", "minmax"), "steps", ("sampled returns", "deterministic returns")),
    ],
    ids=["control", "language", "chain", "control and language", "language and chain", "nothing"],
)
def test_runs_are_read_as_their_kind_says_and_mixtures_as_returns(
    tmp_path: Path, kinds: list[str], usual: tuple[str, str], unit: str, words: tuple[str, str]
) -> None:
    runs = runs_of(tmp_path, *kinds)
    assert scores.resolve_auto(runs, "auto", "auto") == usual
    assert scores.resolve_auto(runs, "deterministic", "frozen") == ("deterministic", "frozen")
    assert scores.unit(runs) == unit
    assert tuple(scores.score_in_words(runs, score) for score in scores.SCORES) == words


def test_runs_of_a_kind_may_be_scored_in_more_ways_than_others(tmp_path: Path) -> None:
    facts = KINDS["language"].facts
    assert facts(["deterministic"])["measures"] == {"deterministic": "greedy accuracy"}
    runs = [
        write_run(tmp_path, seed=seed, kind="language", env="word-problems", phases=3, said={"task": facts(ways)})
        for seed, ways in enumerate((["deterministic"], ["sampled", "deterministic"]))
    ]
    for some in (runs, runs[::-1]):
        assert scores.resolve_auto(some, "auto", "auto") == ("deterministic", "raw")
        words = [scores.score_in_words(some, score) for score in scores.SCORES]
        assert words == ["sampled accuracy", "greedy accuracy"]
    assert scores.score_in_words(runs[:1], "sampled") == "sampled returns"


def test_a_kind_that_nobody_has_heard_of_is_read_as_it_says(tmp_path: Path) -> None:
    task = {
        "kind": "grid",
        "unit": "sweeps of the grid",
        "measures": {"sampled": "exact value"},
        "score": "sampled",
        "normalise": "raw",
        "axes": {"W": "width"},
    }
    given: dict[str, Any] = {"env": "grid", "phases": 3, "said": {"task": task}, "settings": {"width": 5}}
    runs = [write_run(tmp_path, seed=seed, sampled=0.5 + seed / 10, **given) for seed in (0, 1)]
    settings = stats.table(runs, reps=20).settings
    assert {key: settings[key] for key in ("score", "normalise", "measure", "unit")} == {
        "score": "sampled",
        "normalise": "raw",
        "measure": "exact value",
        "unit": "sweeps of the grid",
    }
    assert (scores.axis(runs[0], "W"), scores.axis(runs[0], "N")) == ("width", None)
    assert scores.unit([*runs, *runs_of(tmp_path, "control")]) == "environment steps or sweeps of the grid"


def test_an_axis_is_swept_only_where_the_kind_has_it() -> None:
    runs = plan(sweep_request(env="bit-chain", algo="seq_is", n="1,4", seeds="1")).runs
    assert [(run.label, run.spec.minibatches) for run in runs] == [("seq_is N=1", 1), ("seq_is N=4", 4)]
    with pytest.raises(UserError, match="N counts minibatches"):
        plan(sweep_request(env="Hopper", algo="spo", n="4", seeds="1"))


def test_weights_change_inside_rows_only_where_the_kind_allows() -> None:
    spec = ControlTask.settings.from_dict({"env": "e", "algorithm": "a", "capacity": 4, "lag": "inflight:8"})
    with pytest.raises(UserError, match="changes weights inside a row"):
        ControlTask.check(spec)

    class Inflight(ControlTask):
        inflight = True

    Inflight.check(spec)


def test_an_unlisted_id_is_tried_before_anything_is_written() -> None:
    with pytest.raises(UserError, match="FrozenLake-v1"):
        plan(sweep_request(env="FrozenLake-v1", algo="spo", seeds="1"))
    assert isinstance(plan(sweep_request(env="Hopper-v4", algo="spo", seeds="1")).runs[0].spec, RunSpec)
