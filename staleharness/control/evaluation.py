"""Episodes without training: scores of the newest policy, and returns and pictures of a stored one.

Scores are taken with frozen statistics on fixed seeds, acting by sampling and by the mean.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.cancellation import check_stop
from ..base.streams import integer, stream
from ..errors import Diverged, UserError, type_and_message
from ..training.phase_record import Scores
from ..training.policy_buffer import Version
from .action_distributions import action_converter
from .env_checks import FIRST_END, explain_env_errors, step_vector, time_limit
from .gymnasium_env_lookup import make
from .policy import MLPPolicy
from .spec import ControlSpec
from .task import ControlTask

if TYPE_CHECKING:
    from ..store.numpy_policy import StoredPolicy

SEED = 20_240_603  # the same for every run: all policies meet the same initial states and the same noise
LONGEST = 1_000_000  # steps; an environment that never ends an episode cannot be scored
LONGEST_EPISODE = 50_000  # steps of a stored policy
CHECK_EVERY = 256  # steps between checks of whether the process is to end


def evaluate(spec: ControlSpec, task: ControlTask, policy: MLPPolicy, version: Version, episodes: int) -> Scores:
    """Play `episodes` sampled and as many deterministic episodes, each pair from the same initial state.

    Raises `UserError` for a first step that `step_vector` refuses and for an episode that does not end, `Diverged` for
    an observation or reward that is not finite, and `Interrupted` where the process is to end.
    """
    env = task.vector(spec.env, 2 * episodes, spec.threads)
    with contextlib.closing(env), explain_env_errors(spec.env):
        actors = policy.acting([version], np.zeros(2 * episodes, dtype=np.int64))
        rng, to_env = stream(SEED, "evaluation"), action_converter(env)
        noise = np.zeros((2 * episodes, policy.act_dim), dtype=np.float32)

        def act(obs: NDArray[Any]) -> NDArray[Any]:
            noise[:episodes] = policy.distribution.noise(rng, episodes)
            raw = torch.from_numpy(np.asarray(obs, dtype=np.float32)).to(policy.device)
            with torch.no_grad():
                action, _ = actors.act(raw, torch.from_numpy(noise).to(policy.device))
            return to_env(action.cpu().numpy())

        first_end = LONGEST if time_limit(env, spec.env) else FIRST_END
        seeds = seeds_of(episodes)
        returns, lengths = play_episodes(env, spec.env, seeds + seeds, act, first_end, LONGEST)
    halves = {"sampled": slice(0, episodes), "deterministic": slice(episodes, None)}
    return Scores(
        {mode: returns[part].tolist() for mode, part in halves.items()},
        {mode: lengths[part].tolist() for mode, part in halves.items()},
        int(lengths.sum()),
    )


def play(task: ControlTask, policy: StoredPolicy, env: str, episodes: int) -> list[float]:
    """Play episodes by the likeliest actions, from the initial states of a run's evaluations; returns their returns.

    Raises `UserError` where an episode does not end, or the environment returns a value that is not finite.
    """
    vector = task.vector(env, episodes, 1)
    with contextlib.closing(vector), explain_env_errors(env):
        try:
            returns, _ = play_episodes(vector, env, seeds_of(episodes), policy.act, LONGEST_EPISODE, LONGEST_EPISODE)
        except Diverged as error:
            raise UserError(str(error)) from None
    return [float(x) for x in returns]


def seeds_of(episodes: int) -> list[int]:
    """Return the seeds of the initial states."""
    return [integer(SEED, "evaluation", i) for i in range(episodes)]


def play_episodes(
    vector: Any, env: str, seeds: list[int], act: Callable[[NDArray[Any]], NDArray[Any]], first_end: int, longest: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Play an episode in each environment; returns their returns and lengths [N].

    first_end, longest: steps within which the first and the last episode have to end.
    Raises `Diverged` for an observation or reward that is not finite, but not where an earlier action was not finite.
    """
    obs, _ = vector.reset(seed=seeds)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    alive, rest = np.ones(len(seeds), dtype=bool), getattr(vector, "rest", None)
    sound = alive.copy()  # all actions up to now are finite
    while alive.any():
        length, limit = int(lengths.max()), first_end if alive.all() else longest
        if length >= limit:
            raise UserError(f"an episode of {env} lasts more than {limit:,} steps; give it a time limit")
        if length % CHECK_EVERY == 0:
            check_stop(f"an evaluation of {env}")
        step = vector.step if length else functools.partial(step_vector, vector, env)
        action = act(obs)
        obs, reward, terminated, truncated, _ = step(action)
        returns[alive] += reward[alive]
        lengths[alive] += 1
        done = terminated | truncated
        sound &= alive & np.isfinite(action).reshape(len(seeds), -1).all(1)
        for noun, values, rows in (("a reward", reward, sound), ("an observation", obs, sound & ~done)):
            if not np.isfinite(values[rows]).all():
                raise Diverged(f"{env} gave {noun} that is not finite in an evaluation")
        alive &= ~done
        if done.any() and alive.any():
            if rest is not None:
                rest(done)
            else:  # a vector without `rest` steps finished environments too
                obs, _ = vector.reset(options={"reset_mask": done})
    return returns, lengths


def pictures(policy: StoredPolicy, env: str, max_steps: int) -> list[Any]:
    """Render one episode, at most `max_steps` steps of it: pictures [height, width, 3]. Raises `UserError` where
    gymnasium cannot render the environment here."""
    try:
        with contextlib.closing(make(env, render_mode="rgb_array")) as single:
            observation, _ = single.reset(seed=seeds_of(1)[0])
            frames = [single.render()]
            for _ in range(max_steps):
                observation, _, terminated, truncated, _ = single.step(policy.act(observation))
                frames.append(single.render())
                if terminated or truncated:
                    break
    except Exception as error:  # from drivers, or packages that are not installed
        raise UserError(f"{env} cannot be rendered here: {type_and_message(error)}") from error
    return frames
