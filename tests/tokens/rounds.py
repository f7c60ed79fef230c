"""A round of random completions, and the learner that takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from staleharness.algorithm import make_algorithm
from staleharness.batch import Completions
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.prompt_formatting import pad_left
from staleharness.tokens.learner import TokenLearner

Policies = Callable[..., CausalLM]
GROUPS, EACH, WIDTH = 4, 3, 7
PHASE, STEPS_DONE = 5, 9


def round_of(policy: CausalLM, seed: int = 0, drift: float = 0.3) -> Completions:
    """A generation round of random completions; behaviour log-probabilities lie `drift` from the learner's."""
    rng = np.random.default_rng(seed)
    rows, size = GROUPS * EACH, len(policy.tokenizer)
    questions = [rng.integers(3, size, rng.integers(1, 6)).tolist() for _ in range(GROUPS)]
    prompt, prompt_mask = pad_left([q for q in questions for _ in range(EACH)], policy.pad, policy.device)
    mask = torch.from_numpy((np.arange(WIDTH) < rng.integers(1, WIDTH + 1, rows)[:, None]).astype(np.float32))
    token = torch.from_numpy(rng.integers(3, size, (rows, WIDTH))) * mask.long()
    with torch.no_grad():
        logp = policy.score(prompt, prompt_mask, token, mask).logp
    noise = torch.from_numpy(rng.normal(0.0, 1.0, (rows, WIDTH)).astype(np.float32))
    version = torch.from_numpy(rng.integers(2, PHASE + 1, (rows, 1))).expand(rows, WIDTH)
    return Completions(
        prompt=prompt,
        prompt_mask=prompt_mask,
        token=token,
        mask=mask,
        behaviour_logp=(logp + drift * noise) * mask,
        version=version,
        gradient_step=version + 1,
        group=torch.arange(GROUPS).repeat_interleave(EACH),
        outcome=torch.tensor([1.0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]),
        truncated=torch.from_numpy(rng.random(rows) < 0.3),
        unparsed=torch.zeros(rows, dtype=torch.bool),
    )


def learner(policies: Policies, algorithm: str = "ppo_clip", **settings: Any) -> TokenLearner:
    policy = policies(algorithm=algorithm, prompts=GROUPS, completions=EACH, completion_tokens=WIDTH, **settings)
    return TokenLearner(policy.spec, policy, make_algorithm(policy.spec))


def gradients(policies: Policies, data: Completions | None = None, **settings: Any) -> list[Tensor]:
    """The gradient of one step, before it is clipped."""
    made = learner(policies, **{"max_grad_norm": 1e9, **settings})
    made.train(round_of(made.policy) if data is None else data, PHASE)
    return [p.grad.clone() for p in made.parameters if p.grad is not None]


def literal_gradients(policy: CausalLM, data: Completions, aggregation: str, clip: float) -> list[Tensor]:
    """GRPO as printed: per group, per completion, per token; one unpadded forward pass per completion."""
    policy.model.zero_grad()
    total_tokens = float(data.mask.sum())
    loss = torch.zeros((), dtype=torch.float64)
    for row in range(len(data.token)):
        group = data.outcome[data.group == data.group[row]].numpy()
        advantage = (float(data.outcome[row]) - group.mean()) / (group.std(ddof=1) + 1e-6)
        prompt = data.prompt[row][data.prompt_mask[row] == 1].tolist()
        count = int(data.mask[row].sum())
        token = data.token[row, :count].tolist()
        logp = policy.model(input_ids=torch.tensor([prompt + token])).logits[0].double().log_softmax(-1)
        for t, chosen in enumerate(token):
            ratio = (logp[len(prompt) + t - 1, chosen] - float(data.behaviour_logp[row, t])).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            weight = {
                "token-mean": 1.0 / total_tokens,
                "seq-mean-token-mean": 1.0 / count / len(data.token),
                "seq-mean-token-sum-norm": 1.0 / WIDTH / len(data.token),
            }[aggregation]
            loss = loss - weight * surrogate
    loss.backward()
    return [p.grad.clone() for p in policy.parameters.values() if p.grad is not None]


def close(a: list[Tensor], b: list[Tensor], tolerance: float = 1e-5) -> bool:
    return len(a) == len(b) and all(torch.allclose(x, y, atol=tolerance, rtol=1e-4) for x, y in zip(a, b, strict=True))
