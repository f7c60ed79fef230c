"""Episodes of a stored policy, without training: their returns, and pictures where gymnasium can render them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.streams import integer
from ..errors import UserError
from .evaluation import SEED
from .gymnasium_ids import make
from .task import ControlTask

if TYPE_CHECKING:
    from ..store.policy_file import StoredPolicy

LONGEST = 50_000  # steps


def play(task: ControlTask, policy: StoredPolicy, env: str, episodes: int) -> list[float]:
    """Play episodes by the likeliest actions, from the initial states of a run's evaluations; returns their returns.

    Raises `UserError` where an episode does not end.
    """
    vector: Any = task.vector(env, episodes, 1)
    with contextlib.closing(vector):
        observation, _ = vector.reset(seed=[integer(SEED, "evaluation", i) for i in range(episodes)])
        returns, alive = np.zeros(episodes), np.ones(episodes, dtype=np.bool_)
        for _ in range(LONGEST):
            observation, reward, terminated, truncated, _ = vector.step(policy.act(observation))
            returns[alive] += reward[alive]
            done = terminated | truncated
            alive &= ~done
            if not alive.any():
                return [float(x) for x in returns]
            if done.any():
                observation, _ = vector.reset(options={"reset_mask": done})
    raise UserError(f"an episode of {env} lasts more than {LONGEST:,} steps; give it a time limit")


def pictures(policy: StoredPolicy, env: str, most: int) -> list[Any]:
    """Render one episode, at most `most` steps of it: pictures [height, width, 3]. Raises `UserError` where gymnasium
    cannot render the environment here."""
    try:
        with contextlib.closing(make(env, render_mode="rgb_array")) as single:
            observation, _ = single.reset(seed=integer(SEED, "evaluation", 0))
            frames = [single.render()]
            for _ in range(most):
                observation, _, terminated, truncated, _ = single.step(policy.act(observation))
                frames.append(single.render())
                if terminated or truncated:
                    break
    except Exception as error:  # of drivers, of packages that are not installed
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{env} cannot be rendered here: {line}") from error
    return frames
