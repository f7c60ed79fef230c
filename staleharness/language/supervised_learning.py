"""Supervised training before RL, once per machine: of a pretrained model, or of a tiny one from scratch."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base.artifact_cache import build_once
from ..base.cpp_library import compiler_version
from ..base.plugin_code_hash import meaning_hash
from ..base.streams import integer, stream
from ..base.system_info import cpu_model, package_version
from ..errors import Interrupted, UserError
from ..training import checkpoint
from ..training.optimiser import AdamW, clip_norm
from .model.causal_lm_policy import CausalLM
from .model.gguf_conversion import no_progress_bar
from .problem import strip_calculator
from .prompt_formatting import PromptSet, closing_token, pad_left
from .spec import LanguageSpec

BATCH = 16  # problems per step of fine-tuning
TOKENS = 2048  # tokens of a forward pass, prompts and padding included: bounds the memory of a step
MAX_GRAD_NORM = 1.0
SAVE_EVERY = 300.0  # seconds
NO_LABEL = -100  # label that cross-entropy skips
Example = tuple[str, str]  # prompt, completion


def fit(
    parameters: Iterable[Tensor],
    optimise: Callable[[float], None],
    backward: Callable[[int], float],
    steps: int,
    rate: float,
    rising: int,
    max_grad_norm: float,
    progress: Callable[[int, float], None],
    first: int = 0,
) -> None:
    """Train from step `first` on. The learning rate rises to `rate` over `rising` steps, then falls linearly towards 0.

    optimise: takes one step at a learning rate. backward: adds the gradient of a step's loss, and returns the loss.
    progress: called with (steps done, loss) after every step.
    """
    parameters = list(parameters)
    for step in range(first, steps):
        for p in parameters:
            p.grad = None
        loss = backward(step)
        clip_norm(parameters, max_grad_norm)
        optimise(rate * min((step + 1) / rising, (steps - step) / (steps - rising + 1)))
        progress(step + 1, loss)


def _key(**determinants: Any) -> str:
    """Return a hash, 16 hex digits, of everything that determines the bits of a model."""
    packages = ("torch", "transformers", "tokenizers", "numpy")
    content = {**determinants, "versions": {name: package_version(name) for name in packages}, "cpu": cpu_model()}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    with no_progress_bar():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def fine_tune(
    source: str, digest: str, prompts: PromptSet, spec: LanguageSpec, progress: Callable[[str], None]
) -> Path:
    """Train all weights on the solutions of `prompts` for `spec.warm_start` steps of AdamW; return the model's folder.

    Each solution is followed by the token that ends a turn. Done once, whatever the run's seed and method: the folder
    is named by a hash of everything that determines the model's bits. If the process is stopped or killed, the next one
    continues from its checkpoint. digest: of the weights in `source`, with the model of the GPU if one is used
    (`setup.fine_tuning_origin`).
    """

    def make(folder: Path) -> None:
        policy = CausalLM(source, replace(spec, versions="full"))
        checkpoints = folder.with_suffix(".checkpoints")
        checkpoints.mkdir(exist_ok=True)
        train_policy(policy, prompts, spec.warm_start, spec.warm_start_rate, progress, checkpoints)
        _save_model(policy.model, policy.tokenizer, folder)

    key = _key(
        model=digest or source,
        examples=[[p.solution, tokens] for p, tokens in zip(prompts.problems, prompts.tokens, strict=True)],
        steps=[spec.warm_start, BATCH, spec.warm_start_rate, MAX_GRAD_NORM, TOKENS],
        arithmetic=[spec.dtype, spec.device, spec.threads, spec.gradient_checkpointing, spec.micro_batch],
        ends="as the chat template does" if spec.chat_template else "",
        **({"native": compiler_version()} if spec.learner == "native" else {}),
    )
    folder = build_once("taught", key, make)
    shutil.rmtree(folder.with_suffix(".checkpoints"), ignore_errors=True)
    return folder


def train_policy(
    policy: CausalLM,
    prompts: PromptSet,
    steps: int,
    rate: float,
    progress: Callable[[str], None],
    folder: Path | None = None,
) -> None:
    """Raise the mean log-probability of the solutions' tokens, with the problems in a new order in each epoch.

    folder: of checkpoints, written every `SAVE_EVERY` seconds and when `progress` raises `Interrupted`; training
    resumes from the newest one, if any.
    """
    optimiser = AdamW(list(policy.parameters.values()), rate, 1e-8, 0.0)
    count = len(prompts.problems)
    orders = [stream(0, "warm-start", epoch).permutation(count) for epoch in range(-(-steps * BATCH // count))]
    order = np.concatenate(orders)
    due = time.monotonic() + SAVE_EVERY

    def backward(step: int) -> float:
        rows = order[step * BATCH : (step + 1) * BATCH].tolist()
        prompt, prompt_mask = pad_left([prompts.tokens[i] for i in rows], policy.pad, policy.device)
        token, mask = _solutions(policy, [prompts.problems[i].solution for i in rows])
        width = prompt.shape[1] + token.shape[1]
        loss = 0.0
        pieces = min(len(rows), -(-len(rows) * width // TOKENS))
        for piece in torch.arange(len(rows), device=policy.device).tensor_split(pieces):
            logp = policy.score(prompt[piece], prompt_mask[piece], token[piece], mask[piece], entropy="none").logp
            part = -(logp * mask[piece]).sum() / mask.sum()
            part.backward()
            loss += part.item()
        return loss

    def report(step: int, loss: float) -> None:
        nonlocal due
        try:
            progress(f"warm start: step {step} of {steps}, loss {loss:.2f}")
        except Interrupted:
            if folder:
                _save(policy, optimiser, folder, step)
            raise
        if folder and (now := time.monotonic()) > due:
            _save(policy, optimiser, folder, step)
            due = checkpoint.next_due(now, time.monotonic(), SAVE_EVERY)

    first = _resume(policy, optimiser, folder) if folder else 0
    rising = max(1, steps // 10)
    fit(optimiser.parameters, optimiser.step, backward, steps, rate, rising, MAX_GRAD_NORM, report, first)


def _save(policy: CausalLM, optimiser: AdamW, folder: Path, step: int) -> None:
    parameters = {name: p.detach() for name, p in policy.parameters.items()}
    checkpoint.save(folder, step, {"step": step, "parameters": parameters, "optimiser": optimiser.state_dict()})


def _resume(policy: CausalLM, optimiser: AdamW, folder: Path) -> int:
    """Restore the newest intact checkpoint in `folder`; return its number of steps, 0 without one."""
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
    """Return (tokens int64, mask float32), both [B, T], padded on the right; each row ends as a completion does."""
    plain, end = [strip_calculator(text) for text in texts], closing_token(policy)
    rows = [[*ids, end] for ids in policy.tokens(plain, special=False)]
    width = max(map(len, rows))
    token = torch.tensor([row + [policy.pad] * (width - len(row)) for row in rows], device=policy.device)
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in rows], device=policy.device)
    return token, mask


@dataclass(frozen=True)
class WarmStart:
    """Settings of AdamW; the learning rate rises over the first twentieth of the steps and falls linearly towards 0."""

    steps: int = 400
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    label_smoothing: float = 0.0
    seed: int = 0


def warm_start(
    example: Callable[[int], Example],
    tokenizer: Any,
    config: Any,
    settings: WarmStart,
    sources: Sequence[Path],
    progress: Callable[[int, float], None] | None = None,
) -> Path:
    """Return the folder of a model and tokenizer trained on `example(0)`, `example(1)`, ..., each seen once.

    Done once: the folder is named by a hash of everything that determines the model's bits (settings, architecture,
    tokenizer, the code of the `sources` that define `example`, library versions, CPU), and a second process waits for
    the first. Runs on one thread, whatever the caller uses: bits depend on the number, and one is the fastest.
    `progress` is called with (steps done, loss) after every step.
    """

    def make(folder: Path) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            model = train(example, tokenizer, config, settings, progress)
        finally:
            torch.set_num_threads(threads)
        _save_model(model, tokenizer, folder)

    key = _key(
        settings=asdict(settings),
        config=config.to_dict(),
        tokenizer=tokenizer.backend_tokenizer.to_str(),
        sources=[meaning_hash(path.read_bytes()) for path in (Path(__file__), *sources)],
    )
    return build_once("warm_start", key, make)


def train(
    example: Callable[[int], Example],
    tokenizer: Any,
    config: Any,
    settings: WarmStart,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """Return a model trained on the mean cross-entropy over the completions' tokens and the `<eos>` after each."""
    model = initial(config, settings.seed)
    # torch's optimiser and not the fused `AdamW`, whose bits differ: published runs begin with these weights
    optimiser = torch.optim.AdamW(model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)

    def optimise(rate: float) -> None:
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()

    def backward(step: int) -> float:
        first = step * settings.batch_size
        batch = encode([example(i) for i in range(first, first + settings.batch_size)], tokenizer)
        labels = batch.pop("labels")[:, 1:].flatten()
        logits = model(**batch, use_cache=False).logits[:, :-1].flatten(0, 1)
        smoothing = settings.label_smoothing
        loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=NO_LABEL, label_smoothing=smoothing)
        loss.backward()
        return loss.item()

    rate, rising = settings.learning_rate, max(1, settings.steps // 20)
    report = progress or (lambda step, loss: None)
    fit(model.parameters(), optimise, backward, settings.steps, rate, rising, settings.max_grad_norm, report)
    return model.eval()


def initial(config: Any, seed: int) -> Any:
    """Return a model of `config` with transformers' own initialisation, drawn from a stream of `seed`."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):  # transformers draws from the global generator: restore it
        torch.manual_seed(integer(seed, "warm-start"))
        # a copy: the model writes into its configuration, and the caller's is part of the folder's name
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=torch.float32, trust_remote_code=False)
        return model.train()


def encode(examples: Sequence[Example], tokenizer: Any) -> dict[str, Tensor]:
    """Return `input_ids`, `attention_mask` and `labels` [B, T], padded on the right; prompts have no label."""
    prompts = tokenizer([prompt for prompt, _ in examples], add_special_tokens=False).input_ids
    completions = tokenizer([completion for _, completion in examples], add_special_tokens=False).input_ids
    rows = [(p, [*c, tokenizer.eos_token_id]) for p, c in zip(prompts, completions, strict=True)]
    shape = len(rows), max(len(p) + len(c) for p, c in rows)
    ids = torch.full(shape, tokenizer.pad_token_id)
    labels = torch.full(shape, NO_LABEL)
    mask = torch.zeros(shape, dtype=torch.long)
    for i, (p, c) in enumerate(rows):
        end = len(p) + len(c)
        ids[i, :end] = torch.tensor(p + c)
        labels[i, len(p) : end] = torch.tensor(c)
        mask[i, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
