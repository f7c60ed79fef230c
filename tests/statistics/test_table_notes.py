"""Notes below a table: less lag than promised, ledger, scores that are noise, warnings, unequal runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.statistics import aggregate
from staleharness.statistics.results import load
from staleharness.statistics.table_notes import on_starts, on_warnings
from staleharness.store.run_grid import grid
from staleharness.store.store import StoredRun

MakeRun = Callable[..., StoredRun]
PROMISE = {"mean": 3.5, "cap": 7, "expected": 3.0}


def hist(**lags: int) -> dict[str, int]:
    return {key.removeprefix("at"): n for key, n in lags.items()}


def accounts(lags: dict[str, int], realised: dict[str, int] | None = None, **ledger: int) -> dict[str, Any]:
    """Entries of a record: trained decisions by lag, generated ones where they differ, and the ledger."""
    count = sum(lags.values())
    entries = {"generated": count, "trained": count, "dropped": 0, "masked": 0, "queued": 0, "reused": 0}
    kinds = {"assigned": lags, "realised": realised or lags, "trained": lags}
    return {"lags": kinds, "promise": PROMISE, "ledger": {"decisions": entries | ledger}}


@pytest.fixture
def make(tmp_path: Path) -> MakeRun:
    return lambda label="vaco", seed=0, **said: write_run(tmp_path, label, seed, **said)


def test_starts_that_differ_between_processors_have_a_note(tmp_path: Path) -> None:
    """Seed 1 began alike on both; seeds may differ from each other."""
    cases = [("vaco", 0, "A", 0.426), ("spo", 0, "B", 0.453), ("vaco", 1, "A", 0.6), ("spo", 1, "B", 0.601)]
    runs = []
    for label, seed, cpu, score in cases:
        runs.append(write_run(tmp_path, label, seed, fingerprint={"cpu": cpu}))
        runs[-1].record["summary"]["untrained/deterministic"] = score
    (note,) = on_starts(runs)
    assert "runs of one seed began with policies of different scores (0.426, 0.453), made by different kinds" in note
    assert note in aggregate.table(grid(runs), reps=50, engine="quick").notes
    assert not on_starts(runs[2:]) and not on_starts(runs[::2])


def notes(*runs: StoredRun, **options: Any) -> list[str]:
    """Notes on lag, ledger and learning, in order."""
    ours = ("less lag", "mean lag in phases", "ledger: ", "rows trained", "not in the ledger", "no method", "K = ")
    table = aggregate.table(runs, reps=10, engine="quick", **options)
    return [note for note in table.notes if note.startswith(ours)]


def test_runs_without_accounts_say_nothing(make: MakeRun) -> None:
    assert notes(make(seed=0), make(seed=1)) == []


def test_runs_that_keep_what_was_promised_say_nothing(make: MakeRun) -> None:
    full = accounts(hist(at0=10, at7=10))
    assert notes(make(seed=0, said=full), make(seed=1, said=full)) == []


def test_less_lag_than_promised_and_unreached_cap_have_notes(make: MakeRun) -> None:
    short = accounts(hist(at0=10, at1=10, at3=0))
    assert notes(make(phases=4, said=short), make(seed=1, phases=4, said=short)) == [
        "less lag than LAG=uniform has with a full buffer: K = 8 trained at a mean lag of 0.50 phases, not 3.50 "
        "(4 phases)",
        "K = 8: data may be 7 phases old, and the oldest trained on were 1",
    ]
    assert notes(make(phases=1, said=short))[0].endswith("not 3.50 (1 phase)")


def test_capacities_and_lag_models_stand_in_one_line(make: MakeRun) -> None:
    short, full = accounts(hist(at0=10)), accounts(hist(at7=10))
    runs = [make(capacity=k, said=said) for k, said in ((2, short), (4, full), (8, short))]
    first, second = notes(*runs)
    assert "K = 2 trained" in first and "; K = 8 trained" in first and "K = 4" not in first
    assert second.count("the oldest trained on were") == 2
    other = make("vaco[lag=oldest]", capacity=16, said=short, settings={"lag": "oldest"})
    first = notes(*runs, other)[0]
    assert "than the lag model has" in first and "K = 16, LAG=oldest trained" in first


def test_lag_that_was_made_and_not_trained_on_is_said(make: MakeRun) -> None:
    found = notes(make(said=accounts(hist(at3=10, at7=10), hist(at3=10, at7=30), generated=40, dropped=20)))
    assert found == [
        "mean lag in phases: K = 8: 6.00 of all generated data, 5.00 of those trained on",
        "ledger: 40 decisions generated = 20 trained + 20 dropped",
    ]


def test_the_ledger_of_a_replay_says_what_returned(make: MakeRun) -> None:
    said = accounts(hist(at0=1, at7=5000), generated=6000, trained=5001, queued=999, reused=1234)
    assert notes(make(said=said), make(seed=1, said=accounts(hist(at7=10)))) == [
        "ledger: 6,010 decisions generated = 5,011 trained + 999 queued; trained on again: 1,234"
    ]


def test_the_ledger_of_real_actors_says_what_was_lost(make: MakeRun) -> None:
    said = accounts(hist(at0=10, at7=5000), generated=6000, queued=500, lost=490)
    assert notes(make(said=said)) == ["ledger: 6,000 decisions generated = 5,010 trained + 500 queued + 490 lost"]


def of_pipeline(rows: dict[str, int], decisions: dict[str, int], groups: float, **settings: Any) -> dict[str, Any]:
    """A run on tokens under a simulated pipeline, with its two ledgers; `groups` are dropped in a phase."""
    nothing = dict.fromkeys(("dropped", "masked", "queued", "reused"), 0)
    return {
        "settings": {"completions": 4, **settings},
        "said": {
            "ledger": {"sequences": nothing | rows, "decisions": nothing | decisions},
            "pipeline_ledger": {"rows": {}},
            "summary": {"dropped_groups": groups},
        },
    }


def test_rows_trained_on_that_are_shorter_than_all_are_said(make: MakeRun) -> None:
    rows = {"generated": 100, "trained": 80, "dropped": 20}
    run = of_pipeline(rows, {"generated": 1200, "trained": 800, "dropped": 400}, 5.0)
    assert notes(make(**run)) == [
        "ledger: 1,200 decisions generated = 800 trained + 400 dropped",
        "rows trained on have 10.00 decisions on average, all generated rows 12.00: -17%",
    ]
    alike = of_pipeline(rows, {"generated": 1005, "trained": 800, "dropped": 205}, 5.0)
    assert len(notes(make("spo", **alike))) == 1
    parts = {"generated": 110, "trained": 80, "dropped": 20, "lost": 10}  # rows that an actor held when it was killed
    lost = of_pipeline(parts, {"generated": 1020, "trained": 800, "dropped": 200, "lost": 20}, 5.0)
    assert len(notes(make("ppo_clip", **lost))) == 1


def test_decisions_that_the_ledger_lacks_are_said(make: MakeRun) -> None:
    """With ledger=trained, and in records from before such rows were generated."""
    rows = {"generated": 100, "trained": 80, "dropped": 12, "queued": 8}
    trained_only = of_pipeline(rows, {"generated": 800, "trained": 800}, 0.3, ledger="trained")
    words = "not in the ledger: decisions of {} rows that were dropped or left in the queue of a simulated pipeline"
    assert notes(make(**trained_only)) == [words.format(20)]
    earlier = of_pipeline({"generated": 80, "trained": 80}, {"generated": 800, "trained": 800}, 0.75)
    assert notes(make("spo", phases=4, **earlier)) == [words.format(12)]
    nothing = {"generated": 8, "trained": 8}
    assert notes(make("impala", **of_pipeline(nothing, nothing, 0.0))) == []


def before_training(score: float, error: float = 1.0) -> dict[str, Any]:
    names = (f"untrained/{mode}{end}" for mode in ("sampled", "deterministic") for end in ("", "_error"))
    return {"summary": dict(zip(names, (score, error, 0.0, 0.0), strict=True))}


@pytest.mark.parametrize(
    ("start", "ends", "noise"),
    [
        (100.0, (101.0, 99.0), True),
        (100.0, (90.0, 95.0), True),
        (100.0, (101.0, 130.0), True),  # one run is above; the spread between them says how little that is
        (100.0, (129.0, 130.0), False),
        (100.0, (102.0,), True),  # a single run: its episodes' error and that of the start
        (100.0, (103.0,), False),
    ],
)
def test_a_table_in_which_nothing_was_learnt_says_so(
    make: MakeRun, start: float, ends: tuple[float, ...], noise: bool
) -> None:
    runs = [make(seed=seed, sampled=end, said=before_training(start)) for seed, end in enumerate(ends)]
    line = "no method scores significantly above the untrained policy (100.00 on Hopper-v5): "
    line += "none is shown to have learned"
    assert (line in notes(*runs)) == noise


def test_one_method_that_learns_on_one_environment_is_enough(make: MakeRun) -> None:
    still = [make(env=env, sampled=50.0, said=before_training(50.0)) for env in ("Hopper-v5", "Ant-v5")]
    assert any("no method scores significantly" in note for note in notes(*still))
    assert not any(
        "no method scores significantly" in note
        for note in notes(*still, make("spo", sampled=90.0, said=before_training(50.0)))
    )
    unknown = make(env="Walker2d-v5", sampled=1.0)  # of which nobody knows what it began with
    assert not any("no method scores significantly" in note for note in notes(*still, unknown))
    assert grid(still)


def test_warning_names_methods_and_some_capacities(tmp_path: Path) -> None:
    everywhere, once = "vaco: never filters", "memory grew steadily"
    runs = [
        write_run(tmp_path, "vaco", seed, capacity=k, said={"warnings": [everywhere, *([once] if k == 8 else [])]})
        for k in (1, 8)
        for seed in (0, 1)
    ]
    runs.append(write_run(tmp_path, "spo", 0, capacity=8, said={"warnings": [once]}))
    assert on_warnings(runs) == ["spo, vaco (K = 8): memory grew steadily", "vaco: never filters"]


def test_unequal_numbers_of_runs_have_a_note(tmp_path: Path) -> None:
    for env, n in (("A-v1", 4), ("B-v1", 2)):
        for seed in range(n):
            write_run(tmp_path, "vaco", seed, env=env, sampled=float(seed), phases=4)
    notes = load(tmp_path).table(reps=50, engine="quick").notes
    assert any(
        "n is the smallest; in IQM and AUC an environment counts in proportion to its runs" in note for note in notes
    )
