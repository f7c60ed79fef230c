"""Sampler of completions: noise, decoding, log-probabilities by sampler and by trainer, texts and grades."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..base.streams import stream
from ..batch import Completions
from ..errors import UserError
from ..mismatch import read_mismatch
from ..rollout_schedule import Ints
from ..tokens.minibatch_gradient import Timer, parts
from ..tokens.policy_interface import TokenScores
from ..training.policy_buffer import PolicyBuffer
from ..training.sampler_copies import SamplerCopies, block_copier
from .answer_grading import Grade
from .decoder_interface import Decoded, Decoder, Request, takes_mu_from_decoder
from .model.causal_lm_policy import CausalLM
from .model.routing import resize, routing_differs
from .problem import Grader, Problem
from .prompt_formatting import PromptSet, pad_left
from .spec import LanguageSpec

Rows = TypeVar("Rows", Completions, Decoded)
BATCH = 256  # completions of `complete` that are decoded together


class Completion(NamedTuple):
    """Completion of a problem, graded."""

    text: str
    length: int  # tokens
    ended: bool  # False where the limit cut it
    grade: Grade


class Sampler:
    """Completes prompts with versions of the policy and grades the completions.

    timer: seconds since a generation round began: of sampling tokens, of teacher forcing, of grading.
    """

    def __init__(
        self, spec: LanguageSpec, decoder: Decoder, prompts: PromptSet, grader: Grader, stops: tuple[str, ...]
    ) -> None:
        self.spec, self.decoder = spec, decoder
        self.prompts, self.grader, self.stops = prompts, grader, stops
        self.models = read_mismatch(spec.mismatch)
        self.copies: SamplerCopies | None = None
        if self.models or takes_mu_from_decoder(spec):
            self.use_copies()
        self.order: tuple[int, Ints] = (-1, np.empty(0, np.int64))
        self.start_timer()

    def use_copies(self) -> None:
        """Decode with copies of versions from now on. They are in memory of their own, so that products round alike in
        every process."""
        copy_tensors = block_copier(self.models, self.spec.seed, self.decoder.policy.in_by_out_parameters)
        self.copies = SamplerCopies(copy_tensors, self.spec.capacity, self.spec.seed)

    def start_timer(self) -> None:
        self.timer = Timer(self.decoder.policy.device, dict.fromkeys(("generate", "score", "grade"), 0.0))

    def problem(self, number: int) -> int:
        """Return the index of the run's `number`-th problem: without replacement, a new order in each epoch."""
        epoch, place = divmod(number, len(self.prompts.problems))
        if self.order[0] != epoch:
            order = stream(self.spec.seed, "env", epoch).permutation(len(self.prompts.problems))
            self.order = epoch, order
        return int(self.order[1][place])

    def request(
        self,
        problems: Sequence[int],
        keys: Sequence[tuple[int, int]],
        versions: Ints,
        segment_length: int,
        ends: tuple[int, ...] = (),
    ) -> Request:
        """Return the request for `completions` rows per problem index, with `versions` [B, S].

        keys: of each problem, of the noise of its rows: (number of the group among its actor's, the actor).
        """
        spec, policy = self.spec, self.decoder.policy
        group_size, length = spec.completions, spec.completion_tokens
        streams = (
            stream(spec.seed, "action", nth, actor, sample) for nth, actor in keys for sample in range(group_size)
        )
        uniform = np.stack([rng.random(length, np.float32) for rng in streams])
        tokens = [self.prompts.tokens[i] for i in problems for _ in range(group_size)]
        prompt, prompt_mask = pad_left(tokens, policy.pad, policy.device)
        noise = torch.from_numpy(uniform).to(policy.device)
        sampling = tuple(model for model in self.models if model.changes_logits())
        return Request(prompt, prompt_mask, versions, segment_length, noise, length, self.stops, sampling, ends)

    def acting(self, buffer: PolicyBuffer) -> PolicyBuffer:
        """Return the buffer of versions that sample: under a mismatch model, copies."""
        return buffer if self.copies is None else self.copies.view(buffer)

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """Sample completions without scoring or grading them."""
        begin = time.perf_counter()
        decoded = self.decoder.complete(request, self.acting(buffer))
        self.timer("generate", begin)
        return decoded

    def grade(
        self, request: Request, decoded: Decoded, buffer: PolicyBuffer, problems: Sequence[int], groups: Ints
    ) -> Completions:
        """Return the completions of a request for these problem indices, in groups of these numbers, with their
        log-probabilities, by sampler and by trainer, and outcomes."""
        device, group_size = self.decoder.policy.device, self.spec.completions
        begin = time.perf_counter()
        version_scores = teacher_force(self.decoder, request, decoded, buffer)
        experts, differs = self._routing(decoded, version_scores.experts)
        begin = self.timer("score", begin)
        problem_of_row = [self.prompts.problems[i] for i in problems for _ in range(group_size)]
        grades = [completion.grade for completion in self._completions(decoded, problem_of_row)]
        gradient_step = torch.zeros_like(decoded.version)
        for v in decoded.version.unique().tolist():
            gradient_step[decoded.version == v] = buffer[v].gradient_step
        self.timer("grade", begin)
        return Completions(
            prompt=request.prompt,
            prompt_mask=request.prompt_mask,
            token=decoded.token,
            mask=decoded.mask,
            behaviour_logp=behaviour_logp(self.decoder, request, decoded, version_scores.logp),
            version=decoded.version,
            gradient_step=gradient_step,
            group=torch.from_numpy(np.repeat(groups, group_size)).to(device),
            outcome=torch.tensor([g.outcome for g in grades], device=device),
            truncated=~decoded.ended,
            unparsed=torch.tensor([not g.has_answer for g in grades], device=device),
            sampler_logp=decoded.logp,
            version_logp=version_scores.logp,
            version_entropy=version_scores.entropy,
            experts=experts,
            routing_differs=differs,
        )

    def _routing(self, decoded: Decoded, trainer_experts: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the experts to replay and the share of layers [B, T] in which they differ, given the trainer's."""
        if trainer_experts is None:
            return None, None
        differs = None if decoded.experts is None else routing_differs(decoded.experts, trainer_experts, decoded.mask)
        experts = {"none": None, "R2": trainer_experts, "R3": decoded.experts}[self.spec.routing_replay]
        return experts, differs

    def complete(self, prompts: PromptSet, rows: Ints, noise: Tensor | None, buffer: PolicyBuffer) -> list[Completion]:
        """Return a completion of each row's problem by the newest version in the buffer; greedy without `noise`."""
        policy, length = self.decoder.policy, self.spec.completion_tokens
        completions: list[Completion] = []
        for part in parts(np.arange(len(rows)), BATCH):
            problems = rows[part]
            prompt, mask = pad_left([prompts.tokens[i] for i in problems], policy.pad, policy.device)
            versions = np.full((len(part), 1), buffer.newest.phase, dtype=np.int64)
            uniform = None if noise is None else noise[part].to(policy.device)
            request = Request(prompt, mask, versions, length, uniform, length, self.stops)
            decoded = self.decoder.complete(request, buffer)
            completions += self._completions(decoded, [prompts.problems[i] for i in problems])
        return completions

    def _completions(self, decoded: Decoded, problems: Sequence[Problem]) -> list[Completion]:
        """Return completions as text, graded."""
        lengths = decoded.mask.sum(1).long().tolist()
        texts = completion_texts(self.decoder.policy, decoded)
        grades = [self.grader(problem, text) for problem, text in zip(problems, texts, strict=True)]
        return list(map(Completion, texts, lengths, decoded.ended.tolist(), grades))


def behaviour_logp(decoder: Decoder, request: Request, decoded: Decoded, version_logp: Tensor) -> Tensor:
    """Return log μ [B, T] of each token, 0 at padding, as the run's `behaviour` says: the decoder's own number, or
    `version_logp`. Raises `UserError` where that is the decoder's, and it reports none."""
    spec = decoder.policy.spec
    if not (takes_mu_from_decoder(spec) or (spec.behaviour == "auto" and decoder.trusted(request))):
        return version_logp
    if decoded.logp is None:
        raise UserError(f"the decoder {decoder.name} reports no log-probabilities to take μ from")
    return decoded.logp


def teacher_force(decoder: Decoder, request: Request, decoded: Decoded, buffer: PolicyBuffer) -> TokenScores:
    """Return log-probabilities and entropies of the version that sampled each token, by the trainer's arithmetic."""
    policy = decoder.policy
    logp, entropy = torch.zeros_like(decoded.mask), torch.zeros_like(decoded.mask)
    width = request.prompt.shape[1]
    routers = policy.routers
    experts = None if routers is None else routers.unknown(len(logp), width + logp.shape[1], policy.device)
    replay = decoded.experts if policy.spec.routing_replay == "R3" else None
    versions: Ints = decoded.version.cpu().numpy()
    completions = request.prompt, request.prompt_mask, decoded.token, decoded.mask
    first_version, at_once = int(versions.flat[0]), policy.micro_batch == 0 or len(versions) <= policy.micro_batch
    is_uniform = bool((versions == first_version).all())
    if policy.caches_score and at_once and is_uniform and policy.has_weights_of(buffer[first_version]):
        scores = policy.cache_score(*completions)
        assert scores.entropy is not None
        return TokenScores(scores.logp.detach(), scores.entropy.detach(), None)
    with torch.no_grad():
        for group in reversed(policy.groups(versions)):  # first those that decoded last, whose weights are at hand
            version_of_token = versions[group[0]]  # and of each other row
            changes = np.flatnonzero(version_of_token[1:] != version_of_token[:-1]) + 1
            for part in parts(group, policy.micro_batch):
                index, position = torch.from_numpy(part).to(policy.device), np.zeros(len(part), np.int64)
                for first, last in pairwise([0, *changes.tolist(), len(version_of_token)]):
                    with policy.acting([buffer[int(version_of_token[first])]], position) as forward:
                        prompt, prompt_mask, token, mask = (x[index] for x in completions)
                        experts_of_part = None if replay is None else replay[index]
                        scores = policy.score(prompt, prompt_mask, token, mask, forward, experts=experts_of_part)
                    assert scores.entropy is not None
                    logp[index, first:last] = scores.logp[:, first:last]
                    entropy[index, first:last] = scores.entropy[:, first:last]
                    if experts is not None and scores.experts is not None:
                        read = slice(width - 1 + first if first else 0, width - 1 + last)
                        experts[index, read] = scores.experts[:, read]
    return TokenScores(logp, entropy, None, experts)


def completion_texts(policy: CausalLM, decoded: Decoded) -> list[str]:
    """Return completions as text, without special tokens."""
    counts = decoded.mask.sum(1).long().tolist()
    rows = [row[:n] for row, n in zip(decoded.token.tolist(), counts, strict=True)]
    texts: list[str] = policy.tokenizer.batch_decode(rows, skip_special_tokens=True)
    return texts


def concatenate(batches: list[Completions], pad: int) -> Completions:
    """Return the rows of several batches as one, padded to common widths."""
    if len(batches) == 1:
        return batches[0]
    return join_rows(batches, pad, max(batch.prompt.shape[1] for batch in batches))


def join_rows(batches: list[Rows], pad: int, prompt_width: int) -> Rows:
    """Return the rows of several batches as one, padded to the longest completion and to `prompt_width`."""
    width = max(batch.token.shape[1] for batch in batches)

    def widen(name: str, x: Tensor, batch: Rows) -> Tensor:
        if x.ndim == 1:
            return x
        if name == "experts":
            return resize(x, batch.token.shape[1], prompt_width, width)
        fill = float(pad) if name in ("prompt", "token") else 0.0
        padding = (prompt_width - x.shape[1], 0) if name.startswith("prompt") else (0, width - x.shape[1])
        return torch.nn.functional.pad(x, padding, value=fill)

    names = [name for name, x in vars(batches[0]).items() if x is not None]
    columns = {n: torch.cat([widen(n, getattr(batch, n), batch) for batch in batches]) for n in names}
    return replace(batches[0], **columns)
