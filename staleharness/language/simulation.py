"""Language in the loop: past versions of a model complete prompts, a round of them per phase; and their evaluation.

An evaluation is the accuracy on the test problems, graded as in training, of one greedy completion each and of sampled
ones. `greedy_answers` shows completions by the model that a finished run has kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.console_log import LOGGER
from ..base.streams import stream
from ..batch import Completions
from ..objectives import masked_mean
from ..store.stored_run import MODEL
from ..tokens.learner import TokenLearner
from ..tokens.token_metrics import of_mismatch
from ..tokens.token_minibatch import parts
from ..training.loop import RowSource, Simulation
from ..training.phase_record import PhaseData, PhaseRecord, Scores
from ..training.policy_buffer import PolicyBuffer
from .answer_grading import grade
from .decoder_interface import Decoder, Request
from .model.causal_lm_policy import CausalLM
from .model.gpu_memory import explain_oom
from .prompt_formatting import PromptSet, pad_left
from .rollout_sources import GenerationRound, LanguageProcessRollouts, ScheduledCompletions
from .sampler import completion_texts
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask, changes_within_rows, resolve_paths, with_usual_columns

KEPT_CACHE = (
    "kv_cache=keep: behind a change of weights no version alone has sampled, a third source of off-policy data beside "
    "lag and engine; the columns mismatch/* hold it together with the engine"
)


class LanguageSimulation(Simulation[Completions]):
    """A run on prompts with verifiable answers; a phase is a generation round."""

    spec: LanguageSpec
    task: LanguageTask
    policy: CausalLM
    stateful: ClassVar[tuple[str, ...]] = ("generator",)
    counts: ClassVar[tuple[str, ...]] = ("unparsed", "truncated", "complete_right")

    def __init__(self, spec: LanguageSpec, task: LanguageTask, folder: Path = Path()) -> None:
        super().__init__(spec, task)
        local_spec = resolve_paths(spec, folder)
        setup = prepare(local_spec, task)
        self.warnings += setup.warnings
        if spec.kv_cache == "keep" and changes_within_rows(spec):
            self.warnings.append(KEPT_CACHE)
        self.policy, self.sampler, self.test = setup.policy, setup.sampler, setup.test
        self.decoder = self.sampler.decoder
        self.extractor, self.stops = self.sampler.extractor, self.sampler.stops
        train = self.sampler.prompts
        self.dropped_problems = train.dropped + self.test.dropped  # prompts that are too long
        if self.dropped_problems:
            LOGGER.warning("left out %d train and %d test problems: prompts too long", train.dropped, self.test.dropped)
        self.policy.caches_score = self._caches_score()
        self.learner = TokenLearner(spec, self.policy, self.algorithm)
        self.generator: RowSource[GenerationRound]
        if self.lags.model.real:
            self.generator = LanguageProcessRollouts(local_spec, self.task, self.lags, self.policy.pad)
        else:
            self.generator = ScheduledCompletions(self.sampler, self.lags)
            self.warnings += self.generator.warnings

    def _caches_score(self) -> bool:
        """Return whether a round is one minibatch whose training step needs no other scores than the round itself."""
        spec, method = self.spec, self.algorithm
        alone = spec.minibatches == 1 and not spec.dynamic_sampling and spec.entropy_coef == 0
        alone = alone and self.lags.drawn
        alone = alone and self.policy.routers is None
        return alone and not method.optimal_baseline and "logit_norm" not in method.needs

    @property
    def eval_modes(self) -> Sequence[str]:
        return ("sampled", "deterministic") if self.spec.evaluation_samples else ("deterministic",)

    @property
    def test_size(self) -> int:
        return len(self.test.problems)

    def advance(self) -> PhaseRecord:
        """Run one generation round and train on it. Raises `OOM` where the GPU's memory is too small for that."""
        with explain_oom(self.policy):
            return super().advance()

    def collect(self, phase: int) -> PhaseData[Completions]:
        batch = self.generator.collect(self.buffer, phase)
        data = batch.completions
        metrics: dict[str, Any] = {"dropped_groups": batch.dropped_groups, "dropped_problems": self.dropped_problems}
        metrics |= self.external_lag(phase, data.gradient_step[data.mask.bool()])
        sample = batch.candidates or data
        assert sample.version_logp is not None and sample.version_entropy is not None
        metrics |= of_mismatch(sample.sampler_logp, sample.version_logp, sample.version_entropy, sample.mask)
        if sample.routing_differs is not None:
            metrics["mismatch/routing_differs"] = float(masked_mean(sample.routing_differs, sample.mask))
        return PhaseData(data, data.behaviour_logp, metrics, asdict(batch.seconds), batch.flow)

    def state_dict(self) -> dict[str, Any]:
        """Return the state with the batch sizes that memory allowed at the start: other sizes round sums otherwise."""
        policy = self.policy
        sizes = [policy.micro_batch, policy.decode_batch, policy.resident.capacity if policy.resident else 0]
        return super().state_dict() | {"batch_sizes": sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if "batch_sizes" in state:  # not in checkpoints of earlier versions
            self.policy.micro_batch, self.policy.decode_batch, resident = state["batch_sizes"]
            self.policy.keep_resident(resident)

    def artifacts(self) -> dict[str, bytes]:
        return self.generator.artifacts()

    def save(self, folder: Path) -> None:
        if self.spec.keep == "last":
            shutil.rmtree(folder / MODEL, ignore_errors=True)  # of a process that was killed here
            self.policy.save(folder / MODEL)

    def close(self) -> None:
        self.generator.close()

    def evaluate(self) -> Scores:
        return evaluate(self.spec, self.decoder, self.test, self.extractor, self.stops, self.phase)


BATCH = 256  # completions decoded together
SEED = 20_240_603  # the same for every run: all policies are sampled with the same noise


def evaluate(
    spec: LanguageSpec, decoder: Decoder, prompts: PromptSet, extractor: str, stops: tuple[str, ...], phase: int
) -> Scores:
    """Return the learner's scores: `deterministic`, 1 or 0 for each problem's greedy completion; with
    `evaluation_samples`, `sampled`, the share of each problem's samples that is right. Counts greedy completions that
    are unparsed, truncated, or right and not truncated."""
    policy, count = decoder.policy, len(prompts.problems)
    rows = np.arange(min(spec.evaluation_problems or count, count))
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(phase, 0))
    length = spec.completion_tokens

    def complete(rows: NDArray[np.int64], noise: Tensor | None) -> tuple[list[float], list[int], dict[str, int]]:
        """Return (1 or 0, tokens) of a completion for each row's problem, and counts."""
        right: list[float] = []
        lengths: list[int] = []
        counts = {"unparsed": 0, "truncated": 0, "complete_right": 0}
        for part in parts(np.arange(len(rows)), BATCH):
            problems = rows[part]
            prompt, mask = pad_left([prompts.tokens[i] for i in problems], policy.pad, torch.device(spec.device))
            versions = np.full((len(part), 1), phase, dtype=np.int64)
            uniform = None if noise is None else noise[part].to(policy.device)
            decoded = decoder.complete(Request(prompt, mask, versions, length, uniform, length, stops), buffer)
            texts = completion_texts(policy, decoded)
            grades = [grade(t, prompts.problems[i].answer, extractor) for t, i in zip(texts, problems, strict=True)]
            right += [float(g.correct) for g in grades]
            lengths += [int(n) for n in decoded.mask.sum(1).tolist()]
            counts["unparsed"] += sum(not g.has_answer for g in grades)
            counts["truncated"] += int((~decoded.ended).sum())
            ended = decoded.ended.tolist()
            counts["complete_right"] += sum(g.correct and end for g, end in zip(grades, ended, strict=True))
        return right, lengths, counts

    right, lengths, counts = complete(rows, None)
    scores = Scores({"deterministic": right}, {"deterministic": lengths}, sum(lengths), counts)
    if not (samples := spec.evaluation_samples):
        return scores
    streams = (stream(SEED, "evaluation", problem, sample) for problem in rows.tolist() for sample in range(samples))
    noise = np.stack([rng.random(length, np.float32) for rng in streams])
    right, lengths, _ = complete(rows.repeat(samples), torch.from_numpy(noise))
    shares = np.reshape(right, (-1, samples)).mean(1).tolist()
    return Scores(
        {"sampled": shares, **scores.returns},
        {"sampled": lengths, **scores.lengths},
        scores.steps + sum(lengths),
        counts,
    )


class Answer(NamedTuple):
    """Greedy completion of a test problem."""

    question: str
    gold: str
    completion: str
    correct: bool


def greedy_answers(spec: LanguageSpec, task: LanguageTask, model: Path, count: int) -> list[Answer]:
    """Return the answers of the first `count` test problems of a run by the model in a folder. Raises `UserError`."""
    changes: Mapping[str, Any] = {"model": str(model), "start": "", "warm_start": 0, "versions": "full", "capacity": 1}
    setup = prepare(with_usual_columns(replace(spec, **changes)), task)
    policy, decoder, prompts = setup.policy, setup.sampler.decoder, setup.test
    problems, length = prompts.problems[:count], spec.completion_tokens
    prompt, mask = pad_left(prompts.tokens[: len(problems)], policy.pad, torch.device(spec.device))
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(0, 0))
    versions = np.zeros((len(problems), 1), np.int64)
    decoded = decoder.complete(Request(prompt, mask, versions, length, None, length, setup.sampler.stops), buffer)
    texts = completion_texts(policy, decoded)
    extractor = setup.sampler.extractor
    return [
        Answer(p.question, p.answer, text, grade(text, p.answer, extractor).correct)
        for p, text in zip(problems, texts, strict=True)
    ]
