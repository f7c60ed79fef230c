"""Cost of VCPO's baseline: one backward pass per completion, against plain training and against two passes.

    python benchmarks/vcpo.py [--quick]

The optimal baseline wants the gradient norm of every completion, so completions go through the model one by one.
Compared on one minibatch of a Qwen2 with random weights, each variant a whole gradient step, optimiser included:

    plain       one forward and one backward pass per completion, advantages known beforehand: the least that
                micro_batch = 1 can cost, and what the published overheads (+19% time, +14% memory) are over
    single      the learner's: gradients are summed twice, with and without the reward, and their norms taken on the way
    double      norms in a first round of passes, the gradient in a second: what one would write down first
    learner     truncated importance sampling in the learner with micro_batch = 1: as any method is trained here,
                with a pass without gradient before, so that its loss is of the whole minibatch
    batched     the same with the whole minibatch in one pass
    two_batched one forward and two backward passes of the whole minibatch: the least that norms of all rows at once can
                cost, which are known before the gradient's pass begins (the norms themselves are left out)

Time: of the processor, median of ratios within a round; all variants in every round, in random order. Memory: peak of
live tensors in a step, as torch's allocator reports them, with weights and both moments of Adam; and what a step holds
beyond them, in sizes of the gradient.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from bench_table import show
from torch import Tensor

from staleharness.algorithm import make_algorithm
from staleharness.batch import Completions
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.spec import LanguageSpec
from staleharness.language.word_tokenizer import word_tokenizer
from staleharness.objectives import group_baseline
from staleharness.tokens.learner import TokenLearner
from staleharness.tokens.minibatch_gradient import Minibatch
from staleharness.tokens.token_metrics import step_metrics
from staleharness.training.base_learner import MinibatchLoss

PROMPT = 32
PHASE = 4


class Plain(TokenLearner):
    """One forward and one backward pass per completion with the group's mean as baseline, nothing else."""

    def gradient(self, batch: Minibatch) -> MinibatchLoss:
        self.optimizer.zero_grad()
        baseline, sigma = group_baseline(batch.data.outcome, batch.data.group, self.spec.baseline)
        return self.one_by_one(batch, ((batch.data.outcome - baseline) / sigma)[:, None] * batch.mask)

    def one_by_one(
        self, batch: Minibatch, advantage: Tensor, after: Callable[[int], None] = lambda row: None
    ) -> MinibatchLoss:
        """Gradients of all rows, added up with the parameters; `after` is told of each row."""
        logp, logp_gradient = torch.zeros_like(batch.mask), torch.zeros_like(batch.mask)
        for row in range(len(batch.mask)):
            one = batch.rows(torch.tensor([row]))
            data = one.data
            scored = self.policy.score(data.prompt, data.prompt_mask, data.token, data.mask)
            leaf = scored.logp.detach().requires_grad_()
            seen = one.decisions(leaf, advantage[row : row + 1])
            (one.weights * self.algorithm.policy_loss(seen).loss).sum().backward()
            assert leaf.grad is not None
            torch.autograd.backward([scored.logp], [leaf.grad])
            logp[row], logp_gradient[row] = leaf.detach()[0], leaf.grad[0]
            after(row)
        decisions = batch.decisions(logp, advantage)
        answer, entropy = self.algorithm.policy_loss(decisions), torch.zeros_like(batch.mask)
        log = step_metrics(decisions, answer, logp_gradient, entropy, batch.weights, "behaviour")
        return MinibatchLoss(decisions, answer, log)


class Double(Plain):
    """VCPO read literally: first the norms of all completions, then the gradient with the baseline they give."""

    def gradient(self, batch: Minibatch) -> MinibatchLoss:
        self.optimizer.zero_grad()
        data = batch.data
        _, sigma = group_baseline(data.outcome, data.group, self.spec.baseline)
        norms = torch.zeros_like(sigma)

        def take_norm(row: int) -> None:
            found = torch.stack(torch._foreach_norm([p.grad for p in self.parameters if p.grad is not None]))
            norms[row] = found.square().sum() / batch.weights[row].max().square()
            self.optimizer.zero_grad()

        first = self.one_by_one(batch, batch.mask, take_norm)
        baseline = torch.zeros_like(sigma)
        for group in data.group.unique():
            rows = (data.group == group).nonzero()[:, 0]
            group_part = batch.rows(rows)
            seen = group_part.decisions(first.decisions.target_logp[rows], group_part.mask)
            baseline[rows] = self.algorithm.row_baseline(seen, norms[rows])
        return self.one_by_one(batch, ((data.outcome - baseline) / sigma)[:, None] * batch.mask)


class BatchTwice(TokenLearner):
    """The first backward pass would bring the norms of all rows, the second the gradient under the baseline."""

    def gradient(self, batch: Minibatch) -> MinibatchLoss:
        data = batch.data
        scored = self.policy.score(data.prompt, data.prompt_mask, data.token, data.mask)
        leaf = scored.logp.detach().requires_grad_()
        baseline, sigma = group_baseline(data.outcome, data.group, self.spec.baseline)
        decisions = batch.decisions(leaf, ((data.outcome - baseline) / sigma)[:, None] * batch.mask)
        answer = self.algorithm.policy_loss(decisions)
        (batch.weights * answer.loss).sum().backward()
        assert leaf.grad is not None
        for _ in range(2):
            self.optimizer.zero_grad()
            torch.autograd.backward([scored.logp], [leaf.grad], retain_graph=True)
        log = step_metrics(decisions, answer, leaf.grad, torch.zeros_like(batch.mask), batch.weights, "behaviour")
        return MinibatchLoss(decisions, answer, log)


VARIANTS: dict[str, tuple[type[TokenLearner], dict[str, Any]]] = {
    "plain": (Plain, {"algorithm": "vcpo"}),
    "single": (TokenLearner, {"algorithm": "vcpo"}),
    "double": (Double, {"algorithm": "vcpo"}),
    "learner": (TokenLearner, {"algorithm": "tis", "hyper": {"level": "sequence", "cap": 8.0}, "micro_batch": 1}),
    "batched": (TokenLearner, {"algorithm": "tis", "hyper": {"level": "sequence", "cap": 8.0}}),
    "two_batched": (BatchTwice, {"algorithm": "vcpo"}),
}


def saved_model(folder: Path, hidden: int, layers: int) -> None:
    """A Qwen2 with random weights and a tokenizer, as files."""
    tokenizer = word_tokenizer(["a b c d"], range(10))
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=2048,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def minibatch(policy: CausalLM, groups: int, each: int, tokens: int) -> Completions:
    """Random completions of full length, their behaviour log-probabilities a little off the learner's."""
    rng = np.random.default_rng(0)
    rows = groups * each
    prompt = torch.from_numpy(rng.integers(3, 2048, (groups, PROMPT))).repeat_interleave(each, 0)
    token, ones = torch.from_numpy(rng.integers(3, 2048, (rows, tokens))), torch.ones(rows, tokens)
    with torch.no_grad():
        logp = policy.score(prompt, torch.ones_like(prompt), token, ones).logp
    noise = torch.from_numpy(rng.normal(0.0, 0.3 / math.sqrt(tokens), (rows, tokens)).astype(np.float32))
    return Completions(
        prompt=prompt,
        prompt_mask=torch.ones_like(prompt),
        token=token,
        mask=ones,
        behaviour_logp=logp + noise,
        version=torch.full((rows, tokens), PHASE - 1),
        gradient_step=torch.zeros(rows, tokens, dtype=torch.int64),
        group=torch.arange(groups).repeat_interleave(each),
        outcome=torch.arange(rows) % 2 * 1.0,
        truncated=torch.zeros(rows, dtype=torch.bool),
        unparsed=torch.zeros(rows, dtype=torch.bool),
    )


def step(learner: TokenLearner, data: Completions) -> float:
    """Seconds of one gradient step on the processor: one thread, and other processes do not count."""
    learner.begin(data, PHASE)
    begin = time.process_time()
    learner.step(learner.minibatch(data, data.mask), 1e-6)
    return time.process_time() - begin


def peak_of_a_step(learner: TokenLearner, data: Completions) -> int:
    """Bytes of tensors alive at the worst moment of a step, beyond those that lived when it began."""
    learner.optimizer.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        step(learner, data)
    events = found.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return int(np.cumsum([size for _, size in changes]).max())


def gradient(learner: TokenLearner, data: Completions) -> Tensor:
    learner.begin(data, PHASE)
    learner.optimizer.zero_grad()
    learner.gradient(learner.minibatch(data, data.mask))
    return torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=224, help="of a completion; prompts have 32")
    parser.add_argument("--quick", action="store_true", help="a smaller model and fewer rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would tell when it begins and ends
    transformers.utils.logging.disable_progress_bar()
    hidden, layers = (256, 4) if options.quick else (options.hidden, options.layers)
    groups, each, rounds = 2, 4, 3 if options.quick else 5
    with tempfile.TemporaryDirectory() as folder:
        saved_model(Path(folder), hidden, layers)
        learners: dict[str, TokenLearner] = {}
        for name, (kind, settings) in VARIANTS.items():
            spec = LanguageSpec.from_dict(
                {
                    "env": "word-problems",
                    "model": folder,
                    "prompts": groups,
                    "completions": each,
                    "steps": 1,
                    "completion_tokens": options.tokens,
                    "aggregation": "seq-mean-token-mean",
                    **settings,
                }
            )
            learners[name] = kind(spec, CausalLM(folder, spec), make_algorithm(spec))
    policy = learners["plain"].policy
    assert isinstance(policy, CausalLM)
    data = minibatch(policy, groups, each, options.tokens)
    apart = (gradient(learners["single"], data) - gradient(learners["double"], data)).norm()
    error = float(apart / gradient(learners["double"], data).norm())
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for learner in learners.values():
        step(learner, data)  # the moments of Adam are there from now on
    peaks = {name: peak_of_a_step(learner, data) for name, learner in learners.items()}
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in rng.permutation(list(learners)).tolist():
            seconds[name].append(step(learners[name], data))
    size = 4 * policy.size
    print(
        f"Qwen2, {size / 4e6:.1f}M parameters (hidden {hidden}, {layers} layers), one thread; {groups} x {each} "
        f"completions of {PROMPT} + {options.tokens} tokens; {rounds} interleaved rounds"
    )
    print(f"single and double have the same gradient: relative difference {error:.1e}")
    print(f"{'':11} {'seconds':>8} {'time / plain':>13} {'memory / plain':>15} {'gradient sizes held':>20}")
    rows = []
    for name in learners:
        ratios = [a / b for a, b in zip(seconds[name], seconds["plain"], strict=True)]
        ratio = statistics.median(ratios)
        rows.append((name, ratios))
        memory = (3 * size + peaks[name]) / (3 * size + peaks["plain"])
        print(
            f"{name:11} {statistics.median(seconds[name]):>8.2f} {ratio:>13.2f} {memory:>15.2f} "
            f"{peaks[name] / size:>20.2f}"
        )
    for name, ratios in rows:
        show(f"VCPO's step, {name} / plain: time", ratios)


if __name__ == "__main__":
    main()
