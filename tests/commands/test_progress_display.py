"""Progress of a run on the terminal during a sweep."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from staleharness.commands.shared import progress_display
from staleharness.commands.shared.progress_display import LiveDisplay, PlainLines
from staleharness.running.plan import PlannedRun, plan
from staleharness.study import sweep_request


def plan_run(env: str) -> PlannedRun:
    (run,) = plan(sweep_request(env=env, algo="ppo_clip", k="4", seeds="1")).runs
    return run


def note(live: LiveDisplay, run: PlannedRun) -> str:
    (bar,) = (task for task in live.progress.tasks if task.id == live.bars[run.run_id])
    return str(bar.fields["note"])


def test_preparation_is_shown_beside_the_bar() -> None:
    run, live = plan_run("word-problems"), LiveDisplay(1, 0)
    try:
        live.on_start(run)
        live.on_preparing(run, "warm start: step 3 of 320, loss [0.57]")
        assert note(live, run).startswith("warm start: step 3 of 320")
        live.progress.get_renderable()  # brackets are text
    finally:
        live.close()


@pytest.mark.parametrize(
    ("env", "scores", "words"),
    [
        ("Hopper", {"eval_sampled": 1234.56, "eval_deterministic": 1500.0}, ", sampled returns 1,234.6"),
        ("word-problems", {"eval_sampled": 0.11, "eval_deterministic": 0.25}, ", greedy accuracy 0.250"),
        ("word-problems", {"eval_deterministic": 0.0}, ", greedy accuracy 0.000"),
        ("word-problems", {"eval_deterministic": None}, ""),
    ],
)
def test_a_phase_is_said_with_its_score_in_the_words_of_the_task(
    env: str, scores: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_display, "PLAIN_EVERY", 0.0)
    run, progress = plan_run(env), {"phase": 3, "phases": 8, **scores}
    lines, live = PlainLines(1, 0), LiveDisplay(1, 0)
    try:
        for shown in (lines, live):
            shown.on_start(run)
            shown.on_phase(run, progress)
        assert note(live, run).endswith(f"3/8{words}")
    finally:
        live.close()
    assert f"phase 3/8{words}" in [line.rsplit(": ", 1)[-1] for line in capsys.readouterr().err.splitlines()]


def test_the_time_left_leaves_out_a_warm_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of four runs was stored. The first to run takes an hour of warm start, and then two minutes."""
    clock = [0.0]
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: clock[0])
    run, lines = plan_run("word-problems"), PlainLines(4, 1)
    lines.on_start(run)
    for clock[0] in (1800.0, 3600.0):
        lines.on_preparing(run, "warm start")
    clock[0] = 3660.0
    lines.on_phase(run, {"phase": 1, "phases": 2})
    lines.on_preparing(run, "evaluation")
    clock[0] = 3720.0
    lines.on_end(run, {"event": "done"})
    assert capsys.readouterr().err.splitlines()[-1].endswith("in 1h02m; 2/4 runs, 4m00s left")


@pytest.mark.parametrize("kind", [PlainLines, LiveDisplay])
def test_with_one_run_left_the_report_is_prepared(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run, loads = plan_run("Hopper"), []
    shown: Any = kind(4, 1)
    monkeypatch.setattr(progress_display, "load_report_modules", lambda: loads.append(shown.ended_runs))
    try:
        for _ in range(3):
            shown.on_start(run)
            shown.on_end(run, {"event": "done"})
    finally:
        shown.close()
    assert loads == [3]


def test_what_the_report_needs_can_be_loaded() -> None:
    for module in progress_display.REPORT_MODULES:
        assert importlib.util.find_spec(module) is not None, module
