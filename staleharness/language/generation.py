"""A generation round: draw problems, assign versions, sample completions, grade them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import stream
from ..batch import Completions
from ..errors import UserError
from ..schedule import Ints
from ..simulator.lag_stats import add_histograms
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.row_ledger import Count, Flow
from ..simulator.run_lags import Lags
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
    dropped_groups: int  # that dynamic sampling turned away, or that were never to be trained on
    flow: Flow | None = None  # where not all that was made is trained on
    seconds: Seconds = field(default_factory=Seconds)


class Sampler:
    """Completes prompts and grades what comes of them."""

    def __init__(
        self, spec: LanguageSpec, decoder: Decoder, prompts: PromptSet, extractor: str, stops: tuple[str, ...]
    ) -> None:
        self.spec, self.decoder = spec, decoder
        self.prompts, self.extractor, self.stops = prompts, extractor, stops
        self.order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def problem(self, number: int) -> int:
        """The index of the run's `number`-th problem: without replacement, each epoch in an order of its own."""
        epoch, place = divmod(number, len(self.prompts.problems))
        if self.order[0] != epoch:
            order = stream(self.spec.seed, "env", epoch).permutation(len(self.prompts.problems))
            self.order = epoch, order
        return int(self.order[1][place])

    def request(
        self,
        chosen: Sequence[int],
        keys: Sequence[tuple[int, int]],
        versions: NDArray[np.int64],
        stretch: int,
        ends: tuple[int, ...] = (),
    ) -> Request:
        """`completions` rows for each problem `chosen`, with `versions` [B, S]. `keys`: of each problem, whose noise
        the rows have: (how many groups their actor had made, the actor)."""
        spec, policy = self.spec, self.decoder.policy
        each, length = spec.completions, spec.completion_tokens
        uniform = np.stack(
            [
                stream(spec.seed, "action", nth, actor, sample).random(length, np.float32)
                for nth, actor in keys
                for sample in range(each)
            ]
        )
        tokens = [self.prompts.tokens[i] for i in chosen for _ in range(each)]
        prompt, prompt_mask = pad_left(tokens, policy.pad, policy.device)
        noise = torch.from_numpy(uniform).to(policy.device)
        return Request(prompt, prompt_mask, versions, stretch, noise, length, self.stops, ends)

    def complete(
        self, request: Request, buffer: PolicyBuffer, chosen: Sequence[int], groups: Ints, seconds: Seconds
    ) -> Completions:
        """The graded completions of a request for the problems `chosen`, in groups of these numbers."""
        decoded = self.decoded(request, buffer, seconds)
        return self.graded(request, decoded, buffer, chosen, groups, seconds)

    def decoded(self, request: Request, buffer: PolicyBuffer, seconds: Seconds) -> Decoded:
        """What was sampled, and nothing more."""
        begin = time.perf_counter()
        decoded = self.decoder.complete(request, buffer)
        if self.decoder.policy.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.generate += time.perf_counter() - begin
        return decoded

    def graded(
        self,
        request: Request,
        decoded: Decoded,
        buffer: PolicyBuffer,
        chosen: Sequence[int],
        groups: Ints,
        seconds: Seconds,
    ) -> Completions:
        """What was decoded, with its log-probabilities and outcomes."""
        decoder, policy, each = self.decoder, self.decoder.policy, self.spec.completions
        device = policy.device
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
        seconds.score += scored - sampled
        seconds.grade += time.perf_counter() - scored
        return Completions(
            prompt=request.prompt,
            prompt_mask=request.prompt_mask,
            token=decoded.token,
            mask=decoded.mask,
            behaviour_logp=logp,
            version=decoded.version,
            gradient_step=gradient_step,
            group=torch.from_numpy(np.repeat(groups, each)).to(device),
            outcome=torch.tensor([float(v.correct) for v in verdicts], device=device),
            truncated=~decoded.ended,
            unparsed=torch.tensor([not v.parsed for v in verdicts], device=device),
        )


class Generator:
    """Draws from the training problems without replacement, epoch by epoch; `cursor` is where it stands."""

    def __init__(self, sampler: Sampler, lags: Lags) -> None:
        self.spec, self.sampler, self.lags = sampler.spec, sampler, lags
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
            made += count(part)
            if self.spec.dynamic_sampling:
                mixed = _mixed(part.outcome, self.spec.completions)
                dropped += missing - int(mixed.sum()) // self.spec.completions
                left_out = part.rows((~mixed).nonzero()[:, 0])
                lost += count(left_out)
                lags = add_histograms(lags, torch.bincount((phase - left_out.version)[left_out.mask > 0]).tolist())
                part = part.rows(mixed.nonzero()[:, 0])
            kept.append(part)
        flow = Flow(made, dropped=lost, dropped_lags=lags)
        return Round(joined(kept, self.sampler.decoder.policy.pad), dropped, flow, seconds)

    def _draw(self, buffer: PolicyBuffer, phase: int, first: int, groups: int, seconds: Seconds) -> Completions:
        """`groups` more groups of this phase, the first of which is its `first`th."""
        each, length = self.spec.completions, self.spec.completion_tokens
        chosen = [self.next_problem() for _ in range(groups)]
        slots = np.arange(first, first + groups)
        assigned = self.lags.draw(phase, groups, first, length=length)
        stretch = min(assigned.every or length, length)
        versions = np.repeat(assigned.versions, each, axis=0)
        keys = [(phase, slot) for slot in slots.tolist()]
        request = self.sampler.request(chosen, keys, versions, stretch)
        return self.sampler.complete(request, buffer, chosen, slots, seconds)

    def next_problem(self) -> int:
        """The index of the next problem."""
        self.cursor += 1
        return self.sampler.problem(self.cursor - 1)

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cursor = state["cursor"]


def completion_texts(policy: CausalLM, decoded: Decoded) -> list[str]:
    """The completions as text, without special tokens."""
    counts = decoded.mask.sum(1).long().tolist()
    rows = [row[:n] for row, n in zip(decoded.token.tolist(), counts, strict=True)]
    texts: list[str] = policy.tokenizer.batch_decode(rows, skip_special_tokens=True)
    return texts


def count(part: Completions) -> Count:
    """Completions that have a token, and tokens."""
    return Count(int((part.mask.sum(1) > 0).sum()), int(part.mask.sum()))


def _groups(part: Completions) -> int:
    return len(part.group.unique())


def _mixed(outcome: Tensor, each: int) -> Tensor:
    """[B] bool: the row's group has some but not all of its completions right."""
    right = outcome.view(-1, each).sum(1)
    return ((right > 0) & (right < each)).repeat_interleave(each)


def joined(found: list[Completions], pad: int) -> Completions:
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

    names = [f.name for f in fields(Completions) if getattr(found[0], f.name) is not None]
    return Completions(**{n: torch.cat([widened(n, getattr(p, n)) for p in found]) for n in names})
