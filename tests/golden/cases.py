"""The tiny runs whose traces are kept: every method on every kind of task that it is defined on, and every setting
that takes another way through loop, collector or learner.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from staleharness.algorithm import ALGORITHMS
from staleharness.spec import RunSpec
from staleharness.task import find_env

PHASES = 4
CONTROL: dict[str, Any] = {
    "env": "Hopper-v5",
    "capacity": 3,
    "steps": PHASES * 4 * 48,
    "num_envs": 4,
    "num_steps": 48,
    "epochs": 2,
    "minibatches": 3,
    "learning_rate": 3e-3,
    "evaluations": 1,
    "evaluation_episodes": 1,
    "final_episodes": 1,
}
TOKENS: dict[str, Any] = {
    "env": "gsm8k",
    "capacity": 4,
    "steps": PHASES * 2,
    "minibatches": 2,
    "prompts": 4,
    "completions": 6,
    "prompt_tokens": 64,
    "completion_tokens": 6,
    "extractor": "last_number",
    "learning_rate": 3e-2,
    "evaluations": 1,
    "evaluation_problems": 4,
}
CHAIN: dict[str, Any] = {
    "env": "bit-chain",
    "capacity": 3,
    "steps": PHASES * 4,
    "minibatches": 4,
    "horizon": 8,
    "batch": 8,
    "learning_rate": 0.3,
    "evaluations": 1,
}

# name -> settings over those above
CONTROL_WAYS: dict[str, dict[str, Any]] = {
    "ant": {"env": "Ant-v5", "steps": 3 * 4 * 8, "num_steps": 8},
    "pendulum": {"env": "Pendulum-v1"},
    "replay": {"mechanism": "replay"},
    "delay": {"mechanism": "replay", "lag": "fixed:2"},
    "episode": {"assignment": "episode"},
    "mixture": {"density": "mixture", "lag": "geometric:0.5"},
    "shared-live": {"observation_statistics": "shared_live"},
    "frozen": {"observation_statistics": "frozen"},
    "reset": {"reset_each_phase": True},
    "cleanrl": {"bootstrap_truncation": False, "value_clip": 0.0, "scale_rewards": False},
    "entropy": {"entropy_coef": 0.01, "normalise_advantage": False, "anneal_learning_rate": False},
    "sync": {"lag": "uniform/sync:2"},
    "ess-steps": {"step_size": "ess"},
    "lag-steps": {"step_size": "inverse_lag", "lag": "oldest"},
    "realign-epoch": {"algorithm": "vaco", "hyper": {"realign_every": "epoch"}},
    "realign-step": {"algorithm": "vaco", "hyper": {"realign_every": "step"}},
    "ewma": {"algorithm": "decoupled_ppo", "hyper": {"proximal": "ewma"}},
    "native": {"learner": "native"},
    "native-vaco": {"learner": "native", "algorithm": "vaco", "hyper": {"realign_every": "step"}},
    "native-choices": {"learner": "native", "env": "CartPole-v1", "entropy_coef": 0.01},
    "kl-proximal": {"algorithm": "ppo_kl", "hyper": {"reference": "proximal", "adaptive": True}},
}
TOKEN_WAYS: dict[str, dict[str, Any]] = {
    "rloo": {"baseline": "rloo"},
    "dr-grpo": {"baseline": "dr_grpo", "aggregation": "seq-mean-token-sum-norm"},
    "no-baseline": {"baseline": "none", "aggregation": "seq-mean-token-mean"},
    "vcpo-no-baseline": {"algorithm": "vcpo", "baseline": "none"},
    "inflight": {"lag": "inflight:3"},
    "keep-cache": {"lag": "inflight:3", "kv_cache": "keep"},
    "lora": {"versions": "lora", "lora_rank": 2},
    "native": {"learner": "native", "decoder": "native"},
    "dynamic": {"dynamic_sampling": True},
    "epochs": {"epochs": 2, "steps": PHASES * 4},
    "entropy": {"entropy_coef": 0.01, "normalise_advantage": True},
    "pieces": {"micro_batch": 5},
    "masked": {"mask_truncated": True, "weight_decay": 0.1},
    "ewma": {"algorithm": "decoupled_ppo", "hyper": {"proximal": "ewma"}},
    "realign-step": {"algorithm": "vaco", "hyper": {"realign_every": "step"}},
    "kl-adaptive": {"algorithm": "ppo_kl", "hyper": {"adaptive": True}},
    "ess-steps": {"step_size": "ess", "anneal_learning_rate": True},
    "clip-tight": {"hyper": {"clip": 0.01}},
    "a3po-tight": {"algorithm": "a3po", "hyper": {"clip": 0.01}},
}
CHAIN_WAYS: dict[str, dict[str, Any]] = {
    "grpo": {"baseline": "grpo"},
    "no-baseline": {"baseline": "none"},
    "epochs": {"epochs": 2, "steps": PHASES * 8},
    "oldest": {"lag": "oldest"},
    "geometric": {"lag": "geometric:0.7"},
}
HYPER = {"espo": {"anchor": "proximal"}}  # by its defaults it learns nothing from data as stale as these
NAMES = {"control": CONTROL_WAYS, "tokens": TOKEN_WAYS, "chain": CHAIN_WAYS}


def cases() -> list[str]:
    """`<kind>/<algorithm>` and `<kind>/<way>`."""
    bases = {"control": CONTROL, "tokens": TOKENS, "chain": CHAIN}
    found = []
    for kind, base in bases.items():
        provides = find_env(base["env"])[1].provides
        found += [f"{kind}/{name}" for name in ALGORITHMS if ALGORITHMS[name].needs <= provides]
        found += [f"{kind}/{way}" for way in NAMES[kind]]
    return found


def spec_of(case: str, model: Path) -> RunSpec:
    """The run; `model` is the folder with the language model and its problems."""
    kind, _, name = case.partition("/")
    given = {"control": CONTROL, "tokens": TOKENS | {"model": str(model), "data": str(model)}, "chain": CHAIN}[kind]
    method = {"algorithm": name, "hyper": HYPER.get(name, {})}
    own = {"algorithm": "ppo_clip", **NAMES[kind][name]} if name in NAMES[kind] else method
    settings = {**given, **own}
    return find_env(settings["env"])[1].settings.from_dict(settings)
