"""Progress of a run before its first phase: in the log and in `status`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sweeping import environment, process, wait_until

from staleharness.store.run_states import as_text, run_states
from staleharness.store.store import Store

SIZE = "prompts=2,completions=2,completion_tokens=8,evaluation_problems=4,evaluations=1,chat_template=false"
STEPS = 120  # of some seconds in all: something is said every second


@pytest.mark.long
def test_status_and_log_show_the_progress_of_a_warm_start(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = ["--env=word-problems", "--algo=ppo_clip", f"--model={tiny}", "--steps=1", "--seeds=1", "--jobs=1"]
    words = ["sweep", *asked, f"--set={SIZE},warm_start={STEPS}", f"--out={out}"]
    running = subprocess.Popen(
        process(*words, every=0.0),
        env=environment(STALEHARNESS_CACHE=str(tmp_path / "cache")),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_until(lambda: ": warm start: step " in as_text(run_states(Store(out))))
        (row,) = run_states(Store(out))["runs"]
        assert (row["state"], row["phase"]) == ("running", 0)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 0, said
    lines = said.splitlines()
    told = [line for line in lines if " word-problems K=1 seed 0: warm start: step " in line]
    assert told and all(f"of {STEPS}, loss " in line for line in told)
    assert "warm start" not in as_text(run_states(Store(out)))  # it is done
