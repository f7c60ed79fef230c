"""Runs on chains: versions generate whole episodes at once, and evaluation is exact, without sampling."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..base.streams import stream
from ..batch import Completions
from ..errors import UserError, one_line, shorten
from ..rollout_schedule import Ints
from ..tokens.learner import TokenLearner
from ..tokens.policy_interface import Entropy, Forward, TokenScores
from ..training.loop import Simulation
from ..training.phase_record import PhaseData, Scores
from ..training.policy_buffer import Version
from ..training.sample_ledger import Count, flow_of
from .spec import ChainSpec
from .task import ChainTask


def log_probability(logits: Tensor, bits: Tensor) -> Tensor:
    """log π of each decision [B, H], 0 or 1, under logits [H] or [B, H]."""
    return F.logsigmoid(torch.where(bits > 0, logits, -logits))


class BitPolicy:
    """Policy of H trained logits, and past versions of them that act. Its tokens are bits."""

    def __init__(self, horizon: int, logit: float, device: str = "cpu") -> None:
        self.device, self.micro_batch = torch.device(device), 0
        self.logits = torch.full((horizon,), logit, device=self.device, requires_grad=True)

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {"logits": self.logits}

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        return Version(phase, gradient_step, {"logits": self.logits.detach().to("cpu", copy=True)})

    @contextlib.contextmanager
    def acting(self, versions: Sequence[Version], position: NDArray[np.int64]) -> Iterator[Forward]:
        """The logits [B, H] of `versions[position[i]]` in row i."""
        rows = torch.stack([version.tensors["logits"] for version in versions])[torch.from_numpy(position)]
        yield lambda: rows.to(self.device)

    def score(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        token: Tensor,
        mask: Tensor,
        forward: Forward | None = None,
        entropy: Entropy = "value",
        norm: bool = False,
    ) -> TokenScores:
        """Return log-probabilities, entropies and, if `norm`, Σ_v π(v)² of the bits `token` [B, H].

        Prompts are ignored: all episodes begin alike.
        """
        logits = self.logits if forward is None else forward()
        logits = logits[..., : token.shape[1]]
        entropies = squares = None
        if entropy != "none":
            with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
                p = logits.sigmoid()
                entropies = -(p * F.logsigmoid(logits) + (1.0 - p) * F.logsigmoid(-logits)) * mask
        if norm:
            with torch.no_grad():
                p = logits.sigmoid()
                squares = (p.square() + (1.0 - p).square()) * mask
        return TokenScores(log_probability(logits, token) * mask, entropies, squares)


class ChainSimulation(Simulation[Completions]):
    """A run on chains, with the token learner: a bit is a token, and the vocabulary has two.

    The policy is evaluated without sampling: its success probability is computed exactly, which takes no decisions.
    """

    spec: ChainSpec
    task: ChainTask
    policy: BitPolicy

    def __init__(self, spec: ChainSpec, task: ChainTask) -> None:
        super().__init__(spec, task)
        p = _probability(task.start(spec), f"ENV={spec.env}: start", "above 0 and below 1", np.finfo(float).tiny)
        self.policy = BitPolicy(spec.horizon, math.log(p / (1.0 - p)), spec.device)
        self.learner = TokenLearner(spec, self.policy, self.algorithm)

    def collect(self, phase: int) -> PhaseData[Completions]:
        """Generate N × B episodes with the versions that the lag model assigns. The noise of a decision is a function
        of (seed, actor, episode of that actor, position) and, for actors numbered N × B or above, of N × B."""
        spec, device = self.spec, self.policy.device
        size = spec.minibatches * spec.batch
        plan = self.lags.rows(phase, size)
        schedule, rows = plan.schedule, plan.trained
        version, mask = schedule.along(rows, spec.horizon)
        numbers, position = np.unique(version, return_inverse=True)
        versions = [self.buffer[number] for number in numbers.tolist()]
        with self.policy.acting(versions, np.arange(len(versions))) as forward:
            logits = forward()[torch.from_numpy(position).to(device), torch.arange(spec.horizon, device=device)]
        noise = torch.from_numpy(self._noise(schedule.actor[rows], schedule.nth[rows], size))
        bits = noise.to(device) < logits.sigmoid()
        outcome = outcome_of(self.task, spec, bits.cpu().numpy())
        gradient_step = torch.from_numpy(np.array([v.gradient_step for v in versions])[position]).to(device)
        data = Completions(
            prompt=torch.zeros((size, 1), dtype=torch.int64, device=device),
            prompt_mask=torch.ones((size, 1), dtype=torch.int64, device=device),
            token=bits.long(),
            mask=torch.ones(logits.shape, device=device),
            behaviour_logp=log_probability(logits, bits),
            version=torch.from_numpy(version).to(device),
            gradient_step=gradient_step,
            group=torch.arange(size, device=device) // spec.batch,
            outcome=torch.from_numpy(outcome).float().to(device),
            truncated=torch.zeros(size, dtype=torch.bool, device=device),
            unparsed=torch.zeros(size, dtype=torch.bool, device=device),
            kept=None if mask.all() else torch.from_numpy(mask).float().to(device),
        )
        flow = flow_of(schedule, phase, Count(size).rows(spec.horizon))
        return PhaseData(data, data.behaviour_logp, self.external_lag(phase, gradient_step), {}, flow)

    def _noise(self, actor: Ints, nth: Ints, size: int) -> NDArray[np.float32]:
        """Return the noise [R, H] of rows, drawn at once for the `nth` episodes of each block of `size` actors."""
        noise = np.empty((len(actor), self.spec.horizon), np.float32)
        block, place = np.divmod(actor, size)
        for key in set(zip(nth.tolist(), block.tolist(), strict=True)):
            mask = (nth == key[0]) & (block == key[1])
            generator = stream(self.spec.seed, "action", *(key if key[1] else key[:1]))
            noise[mask] = generator.random((size, self.spec.horizon), np.float32)[place[mask]]
        return noise

    def evaluate(self) -> Scores:
        """`sampled`: the exact success probability. `deterministic`: whether the likelier bits succeed."""
        p = self.policy.logits.detach().double().sigmoid().cpu().numpy()
        greedy = outcome_of(self.task, self.spec, (p >= 0.5)[None])
        lengths = {"sampled": [self.spec.horizon], "deterministic": [self.spec.horizon]}
        answer, where = self.task.success_probability(self.spec, p), f"ENV={self.spec.env}: success_probability"
        returns = {"sampled": [_probability(answer, where, "from 0 to 1", 0.0)], "deterministic": [float(greedy[0])]}
        return Scores(returns, lengths, 0)


def simulation(spec: ChainSpec, task: ChainTask, folder: Path) -> ChainSimulation:
    return ChainSimulation(spec, task)


def outcome_of(task: ChainTask, spec: ChainSpec, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return [B], True where an episode of these decisions [B, H] has succeeded. Raises `UserError`."""
    answer: object = task.outcome(spec, bits)
    if not isinstance(answer, np.ndarray) or answer.shape != (len(bits),) or answer.dtype != np.bool_:
        kind = f"a {type(answer).__name__}"
        if isinstance(answer, np.ndarray):
            kind = f"an array of {answer.dtype} of shape {list(answer.shape)}"
        raise UserError(f"ENV={spec.env}: outcome returns {kind}; give an array of bool, here [{len(bits)}]")
    return answer


def _probability(answer: object, where: str, limits: str, least: float) -> float:
    is_number = isinstance(answer, float | int | np.floating) and not isinstance(answer, bool)
    upper = 1.0 if least == 0.0 else 1.0 - np.finfo(float).epsneg
    if not is_number or not least <= float(answer) <= upper:  # type: ignore[arg-type]
        raise UserError(f"{where} returns {shorten(one_line(repr(answer)))}; give a number {limits}")
    return float(answer)  # type: ignore[arg-type]
