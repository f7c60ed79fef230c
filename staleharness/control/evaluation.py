"""Episodes without training: scores of the newest policy, and returns and pictures of a stored one.

Scores are those with frozen statistics on fixed seeds, acting by sampling and by the mean.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..base.cancellation import check_stop
from ..base.streams import integer, stream
from ..errors import UserError, type_and_message
from ..training.phase_record import Scores
from ..training.policy_buffer import Version
from .action_distributions import action_converter
from .gymnasium_ids import make
from .policy import MLPPolicy
from .spec import ControlSpec
from .task import FIRST_END, ControlTask, checked_step, time_limit

if TYPE_CHECKING:
    from ..store.stored_policy import StoredPolicy

SEED = 20_240_603  # the same for every run: all policies meet the same initial states and the same noise
LONGEST = 1_000_000  # steps; an environment that never ends an episode cannot be scored
LONGEST_EPISODE = 50_000  # steps of a stored policy
CHECK_EVERY = 256  # steps between checks of whether the process is to end


def evaluate(spec: ControlSpec, task: ControlTask, policy: MLPPolicy, version: Version, episodes: int) -> Scores:
    """Play `episodes` sampled and as many deterministic episodes, each pair from the same initial state.

    Raises `UserError` for a first step that `checked_step` refuses and for an episode that does not end, and
    `Interrupted` where the process is to end.
    """
    env: Any = task.vector(spec.env, 2 * episodes, spec.threads)
    try:
        seeds = [integer(SEED, "evaluation", i) for i in range(episodes)]
        obs, _ = env.reset(seed=seeds + seeds)
        actors = policy.acting([version], np.zeros(2 * episodes, dtype=np.int64))
        rng = stream(SEED, "evaluation")
        to_env, rest = action_converter(env), getattr(env, "rest", None)
        returns, lengths = np.zeros(2 * episodes), np.zeros(2 * episodes, dtype=np.int64)
        alive = np.ones(2 * episodes, dtype=bool)
        noise = np.zeros((2 * episodes, policy.act_dim), dtype=np.float32)
        longest = LONGEST if time_limit(env, spec.env) else FIRST_END
        while alive.any():
            if not alive.all():
                longest = LONGEST
            if (length := int(lengths.max())) >= longest:
                raise UserError(f"an episode of {spec.env} lasts more than {longest:,} steps; give it a time limit")
            if length % CHECK_EVERY == 0:
                check_stop(f"an evaluation of {spec.env}")
            noise[:episodes] = policy.distribution.noise(rng, episodes)
            raw = torch.from_numpy(np.asarray(obs, dtype=np.float32)).to(policy.device)
            with torch.no_grad():
                action, _ = actors.act(raw, torch.from_numpy(noise).to(policy.device))
            step = env.step if length else functools.partial(checked_step, env, spec.env)
            obs, reward, terminated, truncated, _ = step(to_env(action.cpu().numpy()))
            returns[alive] += reward[alive]
            lengths[alive] += 1
            done = terminated | truncated
            alive &= ~done
            if done.any() and alive.any():
                if rest is not None:
                    rest(done)
                else:  # a vector without `rest` steps finished environments too
                    obs, _ = env.reset(options={"reset_mask": done})
    finally:
        env.close()
    halves = {"sampled": slice(0, episodes), "deterministic": slice(episodes, None)}
    return Scores(
        {mode: returns[part].tolist() for mode, part in halves.items()},
        {mode: lengths[part].tolist() for mode, part in halves.items()},
        int(lengths.sum()),
    )


def play(task: ControlTask, policy: StoredPolicy, env: str, episodes: int) -> list[float]:
    """Play episodes by the likeliest actions, from the initial states of a run's evaluations; returns their returns.

    Raises `UserError` where an episode does not end.
    """
    vector: Any = task.vector(env, episodes, 1)
    with contextlib.closing(vector):
        observation, _ = vector.reset(seed=[integer(SEED, "evaluation", i) for i in range(episodes)])
        returns, alive = np.zeros(episodes), np.ones(episodes, dtype=np.bool_)
        for _ in range(LONGEST_EPISODE):
            observation, reward, terminated, truncated, _ = vector.step(policy.act(observation))
            returns += alive * reward
            ended = terminated | truncated
            alive &= ~ended
            if not alive.any():
                return [float(x) for x in returns]
            if ended.any():
                observation, _ = vector.reset(options={"reset_mask": ended})
    raise UserError(f"an episode of {env} lasts more than {LONGEST_EPISODE:,} steps; give it a time limit")


def pictures(policy: StoredPolicy, env: str, max_steps: int) -> list[Any]:
    """Render one episode, at most `max_steps` steps of it: pictures [height, width, 3]. Raises `UserError` where
    gymnasium cannot render the environment here."""
    try:
        with contextlib.closing(make(env, render_mode="rgb_array")) as single:
            observation, _ = single.reset(seed=integer(SEED, "evaluation", 0))
            frames = [single.render()]
            for _ in range(max_steps):
                observation, _, terminated, truncated, _ = single.step(policy.act(observation))
                frames.append(single.render())
                if terminated or truncated:
                    break
    except Exception as error:  # of drivers, of packages that are not installed
        raise UserError(f"{env} cannot be rendered here: {type_and_message(error)}") from error
    return frames
