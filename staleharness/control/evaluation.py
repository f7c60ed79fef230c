"""Scores: the newest policy with frozen statistics on fixed seeds, acting by sampling and by its mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..base.cancellation import check_stop
from ..base.streams import integer, stream
from ..errors import UserError
from ..training.phase_record import Scores
from ..training.policy_buffer import Version
from .action_distributions import as_taken
from .policy import MLPPolicy
from .spec import ControlSpec
from .task import FIRST_END, ControlTask, time_limit

SEED = 20_240_603  # the same for every run: all policies meet the same initial states and the same noise
LONGEST = 1_000_000  # steps; an environment that never ends an episode cannot be scored
BETWEEN = 256  # steps between two looks at whether the process is to end


def evaluate(spec: ControlSpec, task: ControlTask, policy: MLPPolicy, version: Version, episodes: int) -> Scores:
    """Play `episodes` sampled and as many deterministic episodes, each pair from the same initial state.

    Raises `UserError` for an episode that does not end, and `Interrupted` where the process is to end.
    """
    env: Any = task.vector(spec.env, 2 * episodes, spec.threads)
    try:
        seeds = [integer(SEED, "evaluation", i) for i in range(episodes)]
        obs, _ = env.reset(seed=seeds + seeds)
        actors = policy.acting([version], np.zeros(2 * episodes, dtype=np.int64))
        rng = stream(SEED, "evaluation")
        to_env, rest = as_taken(env), getattr(env, "rest", None)
        returns, lengths = np.zeros(2 * episodes), np.zeros(2 * episodes, dtype=np.int64)
        alive = np.ones(2 * episodes, dtype=bool)
        noise = np.zeros((2 * episodes, policy.act_dim), dtype=np.float32)
        longest = LONGEST if time_limit(env, spec.env) else FIRST_END
        while alive.any():
            if not alive.all():
                longest = LONGEST
            if (length := int(lengths.max())) >= longest:
                raise UserError(f"an episode of {spec.env} lasts more than {longest:,} steps; give it a time limit")
            if length % BETWEEN == 0:
                check_stop(f"an evaluation of {spec.env}")
            noise[:episodes] = policy.density.noise(rng, episodes)
            raw = torch.from_numpy(np.asarray(obs, dtype=np.float32)).to(policy.device)
            with torch.no_grad():
                action, _ = actors.act(raw, torch.from_numpy(noise).to(policy.device))
            obs, reward, terminated, truncated, _ = env.step(to_env(action.cpu().numpy()))
            returns[alive] += reward[alive]
            lengths[alive] += 1
            done = terminated | truncated
            alive &= ~done
            if done.any() and alive.any():
                if rest is not None:
                    rest(done)
                else:  # such a vector steps all that it has
                    obs, _ = env.reset(options={"reset_mask": done})
    finally:
        env.close()
    halves = {"sampled": slice(0, episodes), "deterministic": slice(episodes, None)}
    return Scores(
        {how: returns[part].tolist() for how, part in halves.items()},
        {how: lengths[part].tolist() for how, part in halves.items()},
        int(lengths.sum()),
    )
