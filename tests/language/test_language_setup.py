"""Setup of a run: its progress in the log and in `status`, and its worked examples."""

from __future__ import annotations

import json
import multiprocessing
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from language_fixtures import Specs

from staleharness.base import cancellation
from staleharness.errors import UserError
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.prompt_formatting import PROMPTS, render
from staleharness.language.setup import fine_tuning_origin, prepare
from staleharness.running import worker
from staleharness.running.plan import plan
from staleharness.running.runner_interface import PREPARING, Job
from staleharness.store.run_states import as_text, run_states
from staleharness.store.store import Store
from staleharness.study import sweep_request
from staleharness.task import find_env

SIZE = (
    "prompts=2,completions=2,completion_tokens=8,evaluation_problems=4,evaluations=1,chat_template=false,"
    "training_problems=64,warm_start=3"
)


def test_weights_that_a_gpu_makes_are_named_by_its_model(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"cuda": "NVIDIA H100", "cuda:1": "NVIDIA H200"}
    monkeypatch.setattr(torch.cuda, "get_device_name", models.__getitem__)
    digested, local = spec(model_digest="1f"), spec(model_digest="")
    assert [fine_tuning_origin("model", s) for s in (digested, local)] == ["1f", "model"], "as before on the CPU"
    for device, model in models.items():
        assert fine_tuning_origin("model", replace(digested, device=device)) == f"1f on {model}"
        assert fine_tuning_origin("model", replace(local, device=device)) == f"model on {model}"


def work(job: Job, path: Path) -> None:
    """Execute the job, and write each report with what `status` says at that moment (nothing runs meanwhile)."""
    reports: list[tuple[str, str, int, str]] = []

    def tell(message: dict[str, Any]) -> None:
        if PREPARING in message:
            states = run_states(Store(Path(job.root)))
            (row,) = states["runs"]
            reports.append((message[PREPARING], row["state"], row["phase"], as_text(states)))

    cancellation.REPORT_EVERY = 0.0
    worker.main(job, tell, lambda: False)
    path.write_text(json.dumps(reports))


@pytest.mark.long
def test_status_and_log_show_the_progress_of_a_warm_start(tiny: Path, tmp_path: Path, own_cache: Path) -> None:
    """In a process of its own, whose cache is empty: a shared fork server keeps that of earlier runs."""
    out = tmp_path / "out"
    asked = sweep_request(env="word-problems", algo="ppo_clip", model=str(tiny), steps="1", seeds="1", settings=SIZE)
    (run,) = plan(asked).runs
    Store(out).open_for_writing()
    job = Job(run.run_id, run.label, run.spec.to_dict(), str(out), str(tmp_path))
    process = multiprocessing.get_context("spawn").Process(target=work, args=(job, tmp_path / "reports.json"))
    process.start()
    process.join()
    reports = json.loads((tmp_path / "reports.json").read_text())
    steps = [report for report in reports if report[0].startswith("warm start: step ")]
    texts = [re.sub(r"[\d.]+$", "", text) for text, *_ in steps]
    assert texts == [f"warm start: step {n} of 3, loss " for n in (1, 2, 3)]
    for text, state, phase, status in steps:
        assert (state, phase) == ("running", 0)
        assert status.splitlines()[-1].endswith(f"ppo_clip word-problems K=1 seed 0: {text}")
    assert "warm start" not in as_text(run_states(Store(out)))  # it is done


@pytest.mark.parametrize("warm_start", [0, 2])
def test_worked_examples_are_not_trained_on(
    spec: Specs, own_cache: Path, monkeypatch: pytest.MonkeyPatch, warm_start: int
) -> None:
    """The prompt of each would hold its own answer, as would that of a copy."""
    task = find_env("word-problems")[1]()
    run = spec(prompt_format="lm_eval_5shot", prompt_tokens=512, warm_start=warm_start)
    everything, test = (list(task.problems(run, split)) for split in ("train", "test"))
    splits = {"train": [*everything, everything[2]], "test": test}
    monkeypatch.setattr(task, "problems", lambda _, split: splits[split])
    prompts = prepare(run, task).sampler.prompts
    assert prompts.problems == everything[5:]
    text = render(PROMPTS["lm_eval_5shot"], everything[5].question, everything[:5])
    assert prompts.tokens[0] == CausalLM(run.model, run).tokenizer(text).input_ids
    splits["train"] = everything[:5]
    with pytest.raises(
        UserError, match=r"lm_eval_5shot shows all 5 training problems .* give more problems, or prompt_format=lm_eval"
    ):
        prepare(run, task)
