"""The policy of a run, by the arithmetic that its spec names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .action_distributions import distribution_of
from .policy import MLPPolicy

if TYPE_CHECKING:
    import gymnasium

    from .spec import ControlSpec


def policy_for(spec: ControlSpec, env: gymnasium.vector.VectorEnv) -> MLPPolicy:
    """Return the policy that a run starts from. Raises `UserError` where learner=native finds no compiler."""
    obs_dim = int(math.prod(env.single_observation_space.shape or ()))
    with_critic = spec.value_function == "behaviour"
    arguments = obs_dim, distribution_of(env), spec.hidden, spec.seed, spec.device, with_critic
    if spec.learner == "torch":
        return MLPPolicy(*arguments)
    from .native_learner import NativePolicy

    return NativePolicy(*arguments)
