"""State for environments that cannot report it: remember how each episode began and what was done since.

An episode is a function of the generator its environment held when it was reset and of the actions since
then. So the generator's state, the seed of that reset and the actions are the state; going back means
replaying it all. Exact, slow (it costs as many steps as the longest running episode has had) and general: it
serves `SyncVectorEnv` and `AsyncVectorEnv` over any deterministic environment, and notices one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from ..errors import UserError


def restorable(env: VectorEnv[Any, Any, Any], name: str) -> VectorEnv[Any, Any, Any]:
    """The vector `name`, wrapped in `ReplayState` where it has no `get_state`. Raises `UserError` for one that resets
    by itself, whose steps do not return the last observation of an episode, and for one that cannot be replayed."""
    mode = env.metadata.get("autoreset_mode")
    if mode not in (None, AutoresetMode.DISABLED):
        raise UserError(
            f"ENV={name} resets by itself ({mode}); make its vector with autoreset_mode=AutoresetMode.DISABLED"
        )
    if hasattr(env, "get_state"):
        return env
    try:
        return ReplayState(env)
    except ValueError as error:
        raise UserError(f"ENV={name} has no get_state and set_state, and cannot be replayed: {error}") from error


class ReplayState(VectorWrapper[Any, Any, Any, Any, Any]):
    """Gives a gymnasium vector of environments `get_state` and `set_state` by replay.

    env: a vector with auto-reset DISABLED, array observations and actions, and one generator per environment
        behind `get_attr("np_random")`. Raises `ValueError` otherwise.

    What must hold: an environment draws only from its `np_random`, and carries nothing from one episode to
    the next but that generator. `set_state` compares the last step (observations, rewards, ends of episodes) and the
    generators at the end of the replay with those of `get_state` and raises `RuntimeError` when they differ.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.env: Any  # gymnasium's annotations know neither lists of seeds nor get_attr
        if env.metadata.get("autoreset_mode") is not AutoresetMode.DISABLED:
            raise ValueError("replay needs a vector with autoreset_mode=AutoresetMode.DISABLED")
        if not hasattr(env, "get_attr"):
            raise ValueError(f"{type(env).__name__} has no get_attr, so its generators cannot be read")
        self._start_states: list[State | None] = [None] * self.num_envs  # generators before the last reset
        self._seeds: list[int | None] = [None] * self.num_envs  # the seeds of the last reset
        self._age = np.zeros(self.num_envs, dtype=np.int64)  # steps since then
        self._actions: list[NDArray[Any]] = []  # the last max(age) steps' actions, of all environments
        self._observations: NDArray[Any] | None = None
        self._last_step = self._no_step()  # reward, terminated and truncated [3, N]

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset like the vector itself; notes the generators of the environments that are reset."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=np.bool_)).copy()
        seeds: Any = [None] * self.num_envs if seed is None else seed
        if not isinstance(seeds, (list, tuple, np.ndarray)):
            seeds = [int(seeds) + i for i in range(self.num_envs)]
        seeds = [None if s is None else int(s) for s in seeds]
        generators = self._generators()
        for i in np.flatnonzero(mask).tolist():
            self._start_states[i], self._seeds[i] = state_of(generators[i]), seeds[i]
        observations, infos = self.env.reset(seed=list(seeds), options=options and dict(options))
        self._age[mask], self._last_step[:, mask] = 0, 0
        self._forget()
        self._observations = np.array(observations)
        return observations, infos

    def step(self, actions: NDArray[Any]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step like the vector itself; notes the actions."""
        self._actions.append(np.array(actions))  # an environment may change its own in place
        result: tuple[Any, Any, Any, Any, dict[str, Any]] = self.env.step(actions)
        self._age += 1
        self._forget()
        self._observations, self._last_step = np.array(result[0]), np.array(result[1:4], dtype=np.float64)
        return result

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Arrays of plain numbers; `actions` grows with the age of the oldest running episode."""
        if self._observations is None:
            raise RuntimeError("there is no state before the first reset")
        shape = (len(self._actions), *(self.action_space.shape or ()))
        return {
            "actions": np.array(self._actions, dtype=None if self._actions else np.float32).reshape(shape),
            "age": self._age.copy(),
            "seeds": np.array([-1 if seed is None else seed for seed in self._seeds], dtype=np.int64),
            "began": pack(self._start_states),
            "generators": pack([state_of(generator) for generator in self._generators()]),
            "observations": self._observations.copy(),
            "last_step": self._last_step.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the running episodes. Raises `RuntimeError` when they do not turn out as recorded."""
        arrays = {name: np.asarray(value) for name, value in state.items()}
        if arrays["age"].shape != self._age.shape:
            raise ValueError(f"the state is of {len(arrays['age'])} environments, this vector has {self.num_envs}")
        start_states = unpack(arrays["began"])
        seeds = [None if seed < 0 else seed for seed in arrays["seeds"].tolist()]
        length, age = len(arrays["actions"]), arrays["age"]

        # Environments are aligned at the end. Until its own episode begins, an environment runs through the
        # end of the one before, from anywhere: its steps are thrown away by the reset that begins its
        # episode.
        self.env.reset(seed=[0] * self.num_envs)
        done = np.zeros(self.num_envs, dtype=np.bool_)
        observations: NDArray[Any] = arrays["observations"]
        last_step = self._no_step()
        for k in range(length + 1):
            starting = age == length - k
            if starting.any():
                observations = self._restart(starting, start_states, seeds)
                done &= ~starting
                last_step[:, starting] = 0
            if k < length:
                if done.any():
                    self.env.reset(options={"reset_mask": done.copy()})
                observations, *last, _ = self.env.step(np.array(arrays["actions"][k]))
                last_step = np.array(last, dtype=np.float64)
                done = (last_step[1] != 0) | (last_step[2] != 0)
        self._start_states, self._seeds, self._age = start_states, seeds, age.copy()
        self._actions = list(arrays["actions"])
        self._observations, self._last_step = np.array(observations), last_step

        now, then = self._observations, arrays["observations"].astype(self._observations.dtype)
        generators = [state_of(generator) for generator in self._generators()]
        equal = np.array([x.tobytes() == y.tobytes() for x, y in zip(now, then, strict=True)])  # NaN too
        equal &= [x == y for x, y in zip(generators, unpack(arrays["generators"]), strict=True)]
        if "last_step" in arrays:  # not in older states
            steps = zip(last_step.T, arrays["last_step"].T, strict=True)
            equal &= [x.tobytes() == y.tobytes() for x, y in steps]
        if not equal.all():
            raise RuntimeError(
                "replaying the actions did not lead back to the saved state in environments "
                f"{np.flatnonzero(~equal).tolist()}: they are not a function of their np_random and the "
                "actions, so the run cannot be resumed exactly"
            )

    def _restart(
        self, starting: NDArray[np.bool_], start_states: list[State | None], seeds: list[int | None]
    ) -> NDArray[Any]:
        """Begin the recorded episodes in the environments `starting`; returns the observations of all."""
        generators = [
            generator_from(state) if start and state is not None else current
            for start, state, current in zip(starting, start_states, self._generators(), strict=True)
        ]
        self.env.set_attr("np_random", generators)
        observations: NDArray[Any]
        observations, _ = self.env.reset(seed=list(seeds), options={"reset_mask": starting})
        return observations

    def _generators(self) -> tuple[np.random.Generator, ...]:
        """The environments' generators; live objects of a `SyncVectorEnv`, copies from an
        `AsyncVectorEnv`.
        """
        return tuple(self.env.get_attr("np_random"))

    def _no_step(self) -> NDArray[np.float64]:
        """Return reward, terminated and truncated [3, N] of environments that were just reset."""
        return np.zeros((3, self.num_envs))

    def _forget(self) -> None:
        """Drop the actions that no running episode needs."""
        del self._actions[: len(self._actions) - int(self._age.max())]


State = dict[str, Any]  # what `Generator.bit_generator.state` reads and writes, lists in place of arrays
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")  # those of NumPy; gymnasium's kind is the first


def state_of(generator: object) -> State | None:
    """The state of a generator of NumPy, without arrays; None for None. Raises `UserError` for any other object."""
    if generator is None:
        return None
    bits = getattr(generator, "bit_generator", None)
    if not isinstance(generator, np.random.Generator) or type(bits).__name__ not in BIT_GENERATORS:
        raise UserError(
            f"the np_random of an environment is a {type(bits or generator).__name__}, which cannot be saved; give a "
            f"numpy.random.Generator of {', '.join(BIT_GENERATORS)}, or let reset(seed=...) of gymnasium.Env make it"
        )
    return {name: _without_arrays(part) for name, part in generator.bit_generator.state.items()}


def generator_from(state: State | None) -> np.random.Generator | None:
    """A new generator in that state; None for None."""
    if state is None:
        return None
    bits = getattr(np.random, state["bit_generator"])(0)
    bits.state = {name: _with_arrays(part) for name, part in state.items()}
    return np.random.Generator(bits)


def _without_arrays(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _without_arrays(inner) for name, inner in part.items()}
    return part.tolist() if isinstance(part, np.ndarray | np.generic) else part


def _with_arrays(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _with_arrays(inner) for name, inner in part.items()}
    return np.array(part, dtype=np.uint64) if isinstance(part, list) else part


def pack(states: Sequence[State | None]) -> NDArray[np.uint8]:
    """The states as JSON (the integers have 128 bits, more than any array type) in an array of bytes."""
    return np.frombuffer(json.dumps(list(states)).encode(), dtype=np.uint8).copy()


def unpack(content: NDArray[np.uint8]) -> list[State | None]:
    """The inverse of `pack`."""
    states: list[State | None] = json.loads(np.asarray(content, dtype=np.uint8).tobytes())
    return states
