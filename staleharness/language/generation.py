"""A generation round: draw problems, assign versions, sample completions, grade them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import stream
from ..batch import Completions
from ..errors import UserError
from ..simulator.ages import added
from ..simulator.buffer import PolicyBuffer
from ..simulator.lags import Lags
from ..simulator.ledger import Count, Flow
from .answers import grade
from .behaviour import behaviour_logp
from .decoder import Decoded, Decoder, Request
from .model.causal_lm import CausalLM
from .prompt_set import PromptSet, pad_left
from .spec import LanguageSpec

MOST_DRAWS = 20  # generation rounds in search of groups that teach something (dynamic sampling)


@dataclass
class Seconds:
    """Where the time of a generation round went."""

    generate: float = 0.0  # sampling tokens
    score: float = 0.0  # teacher-forced log-probabilities
    grade: float = 0.0


@dataclass
class Round:
    """A finished generation round."""

    completions: Completions
    dropped_groups: int  # that dynamic sampling turned away
    flow: Flow
    seconds: Seconds = field(default_factory=Seconds)


class Generator:
    """Draws from the training problems without replacement, epoch by epoch; `cursor` is where it stands."""

    def __init__(
        self,
        spec: LanguageSpec,
        decoder: Decoder,
        lags: Lags,
        prompts: PromptSet,
        extractor: str,
        stops: tuple[str, ...],
    ) -> None:
        self.spec, self.decoder, self.lags = spec, decoder, lags
        self.prompts, self.extractor, self.stops = prompts, extractor, stops
        self.cursor = 0

    def round(self, buffer: PolicyBuffer, phase: int) -> Round:
        """N × `prompts` groups, each acted by the version that the lag model assigns to it."""
        wanted = self.spec.minibatches * self.spec.prompts
        kept: list[Completions] = []
        seconds, drawn, dropped = Seconds(), 0, 0
        made, lost, lags = Count(), Count(), list[int]()
        while (missing := wanted - sum(_groups(part) for part in kept)) > 0:
            if drawn >= MOST_DRAWS * wanted:
                raise UserError(
                    f"dynamic sampling found {wanted - missing} of {wanted} groups that are neither all right nor all "
                    f"wrong among {drawn}; the model may be too weak or too strong for these problems"
                )
            part = self._draw(buffer, phase, drawn, missing, seconds)
            drawn += missing
            made += _count(part)
            if self.spec.dynamic_sampling:
                mixed = _mixed(part.outcome, self.spec.completions)
                dropped += missing - int(mixed.sum()) // self.spec.completions
                left_out = part.rows((~mixed).nonzero()[:, 0])
                lost += _count(left_out)
                lags = added(lags, torch.bincount((phase - left_out.version)[left_out.mask > 0]).tolist())
                part = part.rows(mixed.nonzero()[:, 0])
            kept.append(part)
        flow = Flow(made, dropped=lost, dropped_lags=lags)
        return Round(_joined(kept, self.decoder.policy.pad), dropped, flow, seconds)

    def _draw(
        self, buffer: PolicyBuffer, phase: int, first: int, groups: int, seconds: Seconds
    ) -> Completions:
        """`groups` more groups of this phase, the first of which is its `first`th."""
        spec, decoder, policy = self.spec, self.decoder, self.decoder.policy
        device = policy.device
        each, length = spec.completions, spec.completion_tokens
        chosen = [self.next_problem() for _ in range(groups)]
        slots = np.arange(first, first + groups)
        assigned = self.lags.draw(phase, groups, first, length=length)
        stretch = min(assigned.every or length, length)
        versions = np.repeat(assigned.versions, each, axis=0)
        uniform = np.stack([
            stream(spec.seed, "action", phase, slot, sample).random(length, np.float32)
            for slot in slots.tolist()
            for sample in range(each)
        ])  # fmt: skip
        tokens = [self.prompts.tokens[i] for i in chosen for _ in range(each)]
        prompt, prompt_mask = pad_left(tokens, policy.pad, device)
        begin = time.perf_counter()
        noise = torch.from_numpy(uniform).to(device)
        request = Request(prompt, prompt_mask, versions, stretch, noise, length, self.stops)
        decoded = decoder.complete(request, buffer)
        if device.type == "cuda":
            torch.cuda.synchronize()
        sampled = time.perf_counter()
        logp = behaviour_logp(decoder, request, decoded, buffer)
        if device.type == "cuda":
            torch.cuda.synchronize()
        scored = time.perf_counter()
        texts = completion_texts(policy, decoded)
        answers = [self.prompts.problems[i].answer for i in chosen for _ in range(each)]
        verdicts = [grade(text, answer, self.extractor) for text, answer in zip(texts, answers, strict=True)]
        gradient_step = torch.zeros_like(decoded.version)
        for v in decoded.version.unique().tolist():
            gradient_step[decoded.version == v] = buffer[v].gradient_step
        seconds.generate += sampled - begin
        seconds.score += scored - sampled
        seconds.grade += time.perf_counter() - scored
        return Completions(
            prompt=prompt,
            prompt_mask=prompt_mask,
            token=decoded.token,
            mask=decoded.mask,
            behaviour_logp=logp,
            version=decoded.version,
            gradient_step=gradient_step,
            group=torch.from_numpy(np.repeat(slots, each)).to(device),
            outcome=torch.tensor([float(v.correct) for v in verdicts], device=device),
            truncated=~decoded.ended,
            unparsed=torch.tensor([not v.parsed for v in verdicts], device=device),
        )

    def next_problem(self) -> int:
        """The index of the next problem: without replacement, each epoch in an order of its own."""
        count = len(self.prompts.problems)
        epoch, place = divmod(self.cursor, count)
        if place == 0 or not hasattr(self, "order"):
            self.order: NDArray[np.int64] = stream(self.spec.seed, "env", epoch).permutation(count)
        self.cursor += 1
        return int(self.order[place])

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cursor = state["cursor"]
        count = len(self.prompts.problems)
        self.order = stream(self.spec.seed, "env", self.cursor // count).permutation(count)


def completion_texts(policy: CausalLM, decoded: Decoded) -> list[str]:
    """The completions as text, without special tokens."""
    counts = decoded.mask.sum(1).long().tolist()
    rows = [row[:n] for row, n in zip(decoded.token.tolist(), counts, strict=True)]
    texts: list[str] = policy.tokenizer.batch_decode(rows, skip_special_tokens=True)
    return texts


def _count(part: Completions) -> Count:
    return Count(int((part.mask.sum(1) > 0).sum()), int(part.mask.sum()))


def _groups(part: Completions) -> int:
    return len(part.group.unique())


def _mixed(outcome: Tensor, each: int) -> Tensor:
    """[B] bool: the row's group has some but not all of its completions right."""
    right = outcome.view(-1, each).sum(1)
    return ((right > 0) & (right < each)).repeat_interleave(each)


def _joined(found: list[Completions], pad: int) -> Completions:
    """Rows of several parts as one, padded to common widths."""
    if len(found) == 1:
        return found[0]
    prompt_width = max(part.prompt.shape[1] for part in found)
    width = max(part.token.shape[1] for part in found)

    def widened(name: str, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return x
        fill = float(pad) if name in ("prompt", "token") else 0.0
        left = (prompt_width - x.shape[1], 0) if name.startswith("prompt") else (0, width - x.shape[1])
        return torch.nn.functional.pad(x, left, value=fill)

    names = [f.name for f in fields(Completions)]
    return Completions(**{n: torch.cat([widened(n, getattr(p, n)) for p in found]) for n in names})
