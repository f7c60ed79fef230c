"""Progress of a run before its first phase: in the log and in `status`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reporting
from sweeping import staleharness, without_report

from staleharness.commands.shared import display
from staleharness.running.runners import local
from staleharness.store.run_states import as_text, run_states
from staleharness.store.store import Store

SIZE = "prompts=2,completions=2,completion_tokens=8,evaluation_problems=4,evaluations=1,chat_template=false"
STEPS = 3


@pytest.mark.long
def test_status_and_log_show_the_progress_of_a_warm_start(
    tiny: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(local, "_in_child", reporting.child)
    monkeypatch.setattr(display, "PLAIN_EVERY", 0.0)
    asked = ["--env=word-problems", "--algo=ppo_clip", f"--model={tiny}", "--steps=1", "--seeds=1", "--jobs=1"]
    with without_report():
        done = staleharness("sweep", *asked, f"--set={SIZE},training_problems=64,warm_start={STEPS}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in reporting.states(out).read_text().splitlines()]
    assert {(state, phase) for state, phase, _ in seen} == {("running", 0)}
    said = [f": warm start: step {step} of {STEPS}, loss " for step in range(1, STEPS + 1)]
    shown = [text for *_, text in seen if "warm start" in text]
    assert [part in text for part, text in zip(said, shown, strict=True)] == [True] * STEPS
    told = [line for line in done.stderr.splitlines() if " word-problems K=1 seed 0: warm start: step " in line]
    assert [part in line for part, line in zip(said, told, strict=True)] == [True] * STEPS
    assert "warm start" not in as_text(run_states(Store(out)))  # it is done
