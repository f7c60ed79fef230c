"""Supervised learning of a pretrained model on worked solutions, once per machine: a start for RL on a hard task."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..base.cache import build_once
from ..base.machine import cpu_model, package_version
from ..base.streams import stream
from ..errors import Interrupted, UserError
from ..simulator import checkpoint
from ..simulator.learning import clip_norm
from ..simulator.optimiser import AdamW
from .model.causal_lm import CausalLM
from .model.progress_bar import no_progress_bar
from .problem import strip_calculator
from .prompt_set import PromptSet, closing_token, pad_left
from .spec import LanguageSpec

BATCH = 16  # problems of a step
TOKENS = 2048  # that go through the model at once, prompts and padding included: what memory a step takes
MAX_GRAD_NORM = 1.0
SAVE_EVERY = 300.0  # seconds


def taught(source: str, digest: str, prompts: PromptSet, spec: LanguageSpec, progress: Callable[[str], None]) -> Path:
    """The folder of the model after `spec.warm_start` steps of AdamW on the solutions of `prompts`, all its weights
    trained, each solution up to the end of its turn. The learning rate rises to `spec.warm_start_rate` over a tenth of
    the steps, then falls linearly to 0.

    Done once, whatever the run's seed and method: the folder is named by a hash of all that determines its bits. Who
    is stopped or killed meanwhile goes on where it was. `digest` says which weights lie in `source`.
    """

    def make(folder: Path) -> None:
        policy = CausalLM(source, replace(spec, versions="full"))
        under_way = folder.with_suffix(".checkpoints")
        under_way.mkdir(exist_ok=True)
        teach(policy, prompts, spec.warm_start, spec.warm_start_rate, progress, under_way)
        with no_progress_bar():
            policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)

    determines = {
        "model": digest or source,
        "examples": [[p.solution, tokens] for p, tokens in zip(prompts.problems, prompts.tokens, strict=True)],
        "steps": [spec.warm_start, BATCH, spec.warm_start_rate, MAX_GRAD_NORM, TOKENS],
        "arithmetic": [spec.dtype, spec.device, spec.threads, spec.gradient_checkpointing, spec.micro_batch],
        "ends": "as the chat template does" if spec.chat_template else "",
        "versions": {name: package_version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "cpu": cpu_model(),
    }
    key = hashlib.sha256(json.dumps(determines, sort_keys=True).encode()).hexdigest()[:16]
    folder = build_once("taught", key, make)
    shutil.rmtree(folder.with_suffix(".checkpoints"), ignore_errors=True)  # the model is there, whole
    return folder


def teach(
    policy: CausalLM,
    prompts: PromptSet,
    steps: int,
    rate: float,
    progress: Callable[[str], None],
    folder: Path | None = None,
) -> None:
    """Raise the mean log-probability of the solutions' tokens, problems in an order of their own each epoch.

    folder: for checkpoints, now and then and where `progress` raises `Interrupted`; what lies there is gone on from.
    """
    optimiser = AdamW(list(policy.parameters.values()), rate, 1e-8, 0.0)
    count, rising = len(prompts.problems), max(1, steps // 10)
    orders = [stream(0, "warm-start", epoch).permutation(count) for epoch in range(-(-steps * BATCH // count))]
    order = np.concatenate(orders)
    first = _resumed(policy, optimiser, folder) if folder else 0
    due = time.monotonic() + SAVE_EVERY
    for step in range(first, steps):
        rows = order[step * BATCH : (step + 1) * BATCH].tolist()
        prompt, prompt_mask = pad_left([prompts.tokens[i] for i in rows], policy.pad, policy.device)
        token, mask = _solutions(policy, [prompts.problems[i].solution for i in rows])
        width = prompt.shape[1] + token.shape[1]
        optimiser.forget_gradients()
        loss = 0.0
        pieces = min(len(rows), -(-len(rows) * width // TOKENS))
        for piece in torch.arange(len(rows), device=policy.device).tensor_split(pieces):
            given = (prompt[piece], prompt_mask[piece], token[piece], mask[piece])
            logp = policy.score(*given, entropy="none").logp
            part = -(logp * mask[piece]).sum() / mask.sum()
            part.backward()
            loss += part.item()
        clip_norm(optimiser.parameters, MAX_GRAD_NORM)
        optimiser.step(rate * min((step + 1) / rising, (steps - step) / (steps - rising + 1)))
        try:
            progress(f"warm start: step {step + 1} of {steps}, loss {loss:.2f}")
        except Interrupted:
            if folder:
                _save(policy, optimiser, folder, step + 1)
            raise
        if folder and (now := time.monotonic()) > due:
            _save(policy, optimiser, folder, step + 1)
            due = checkpoint.next_due(now, time.monotonic(), SAVE_EVERY)


def _save(policy: CausalLM, optimiser: AdamW, folder: Path, step: int) -> None:
    parameters = {name: p.detach() for name, p in policy.parameters.items()}
    checkpoint.save(folder, step, {"step": step, "parameters": parameters, "optimiser": optimiser.state_dict()})


def _resumed(policy: CausalLM, optimiser: AdamW, folder: Path) -> int:
    """The steps that the newest intact checkpoint in `folder` has done, 0 without one; what it holds is restored."""
    try:
        state = checkpoint.load_newest(folder)
    except checkpoint.Unusable as problem:
        raise UserError(f"a checkpoint in {folder} {problem}; move it away to begin the warm start anew") from problem
    if state is None:
        return 0
    with torch.no_grad():
        for name, p in policy.parameters.items():
            p.copy_(state["parameters"][name])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["step"])


def _solutions(policy: CausalLM, texts: list[str]) -> tuple[Tensor, Tensor]:
    """(tokens int64, mask float32), both [B, T], padded on the right; each ends as a completion does."""
    plain, end = [strip_calculator(text) for text in texts], closing_token(policy)
    rows = [[*ids, end] for ids in policy.tokens(plain, special=False)]
    width = max(map(len, rows))
    token = torch.tensor([row + [policy.pad] * (width - len(row)) for row in rows], device=policy.device)
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows], device=policy.device)
    return token, mask
