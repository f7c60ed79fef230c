"""Supervised learning of a tiny causal LM from nothing, once per machine: what RL on an embedded task starts from."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...base.cache import build_once
from ...base.machine import cpu_model, package_version
from ...base.streams import integer
from ...base.syntax import meaning_hash
from .progress_bar import no_progress_bar

IGNORED = -100  # the label that cross-entropy skips
Example = tuple[str, str]  # what is given, and what is to be said


@dataclass(frozen=True)
class WarmStart:
    """How long and how fast: AdamW, the learning rate warmed up over the first 20th and then linear to 0."""

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
    """The folder of a model and tokenizer trained on `example(0)`, `example(1)`, ..., each seen once.

    Done once: the folder is named by a hash of all that determines its bits (settings, architecture, tokenizer,
    what the `sources` say that `example` is written in, library versions, CPU), and a second process waits for the
    first.
    Computed on one thread whatever the caller uses: bits depend on it, and it is the fastest. `progress` is
    called with (steps done, loss) after every step.
    """

    def make(folder: Path) -> None:
        with _one_thread():
            model = train(example, tokenizer, config, settings, progress)
        with no_progress_bar():
            model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return build_once("warm_start", _key(tokenizer, config, settings, sources), make)


def train(
    example: Callable[[int], Example],
    tokenizer: Any,
    config: Any,
    settings: WarmStart,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """The trained model: mean cross-entropy over the tokens of what is to be said and the `<eos>` after it."""
    model = initial(config, settings.seed)
    optimiser = torch.optim.AdamW(model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    rising = max(1, settings.steps // 20)
    for step in range(settings.steps):
        falling = (settings.steps - step) / (settings.steps - rising + 1)
        optimiser.param_groups[0]["lr"] = settings.learning_rate * min((step + 1) / rising, falling, 1.0)
        first = step * settings.batch_size
        batch = encode([example(i) for i in range(first, first + settings.batch_size)], tokenizer)
        labels = batch.pop("labels")
        logits = model(**batch, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            labels[:, 1:].flatten(),
            ignore_index=IGNORED,
            label_smoothing=settings.label_smoothing,
        )
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimiser.step()
        if progress is not None:
            progress(step + 1, loss.item())
    return model.eval()


def initial(config: Any, seed: int) -> Any:
    """A model of `config` with transformers' own initialisation, drawn from a stream of `seed`."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):  # transformers draws from the global generator: put it back
        torch.manual_seed(integer(seed, "warm-start"))
        # a copy: the model writes into its configuration, and the caller's is what the folder is named by
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=torch.float32, trust_remote_code=False)
        return model.train()


def encode(examples: Sequence[Example], tokenizer: Any) -> dict[str, Tensor]:
    """`input_ids`, `attention_mask` and `labels` [B, T], padded on the right; what was given has no label."""
    given = tokenizer([prompt for prompt, _ in examples], add_special_tokens=False).input_ids
    said = tokenizer([completion for _, completion in examples], add_special_tokens=False).input_ids
    rows = [(g, [*s, tokenizer.eos_token_id]) for g, s in zip(given, said, strict=True)]
    shape = len(rows), max(len(g) + len(s) for g, s in rows)
    ids = torch.full(shape, tokenizer.pad_token_id)
    labels = torch.full(shape, IGNORED)
    mask = torch.zeros(shape, dtype=torch.long)
    for i, (g, s) in enumerate(rows):
        end = len(g) + len(s)
        ids[i, :end] = torch.tensor(g + s)
        labels[i, len(g) : end] = torch.tensor(s)
        mask[i, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _key(tokenizer: Any, config: Any, settings: WarmStart, sources: Sequence[Path]) -> str:
    determines = {
        "settings": asdict(settings),
        "config": config.to_dict(),
        "tokenizer": tokenizer.backend_tokenizer.to_str(),
        "sources": [meaning_hash(path.read_bytes()) for path in (Path(__file__), *sources)],
        "versions": {name: package_version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        "cpu": cpu_model(),
    }
    return hashlib.sha256(json.dumps(determines, sort_keys=True, default=str).encode()).hexdigest()[:16]


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
