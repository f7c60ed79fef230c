"""Progress of a run before its first phase: in the log and in `status`."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import staleharness, without_report

from staleharness.commands.shared import display
from staleharness.running.plan import PlannedRun
from staleharness.store.run_states import as_text, run_states
from staleharness.store.store import Store

SIZE = "prompts=2,completions=2,completion_tokens=8,evaluation_problems=4,evaluations=1,chat_template=false"
STEPS = 400  # some seconds: progress is reported once a second


@pytest.mark.long
@pytest.mark.long
def test_status_and_log_show_the_progress_of_a_warm_start(
    tiny: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    states = []
    on_preparing = display.PlainLines.on_preparing

    def look(self: display.PlainLines, run: PlannedRun, step: str) -> None:
        states.append((run_states(Store(out))["runs"][0], as_text(run_states(Store(out)))))
        on_preparing(self, run, step)

    monkeypatch.setattr(display.PlainLines, "on_preparing", look)
    monkeypatch.setattr(display, "PLAIN_EVERY", 0.0)
    asked = ["--env=word-problems", "--algo=ppo_clip", f"--model={tiny}", "--steps=1", "--seeds=1", "--jobs=1"]
    with without_report():
        done = staleharness("sweep", *asked, f"--set={SIZE},training_problems=64,warm_start={STEPS}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    shown = [(row["state"], row["phase"]) for row, text in states if ": warm start: step " in text]
    assert shown and set(shown) == {("running", 0)}
    told = [line for line in done.stderr.splitlines() if " word-problems K=1 seed 0: warm start: step " in line]
    assert told and all(f"of {STEPS}, loss " in line for line in told)
    assert "warm start" not in as_text(run_states(Store(out)))  # it is done
