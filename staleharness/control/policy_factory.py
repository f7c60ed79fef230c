"""Choice of the policy that a run starts from, by its setting `learner`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .action_distributions import distribution_of
from .native_actor_critic import NativePolicy
from .policy import MLPPolicy
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium


def policy_for(spec: ControlSpec, env: gymnasium.vector.VectorEnv) -> MLPPolicy:
    """Return the policy that a run starts from. Raises `UserError` where learner=native finds no compiler."""
    obs_dim = int(math.prod(env.single_observation_space.shape or ()))
    kind = MLPPolicy if spec.learner == "torch" else NativePolicy
    return kind(obs_dim, distribution_of(env), spec.hidden, spec.seed, spec.device, spec.value_function == "behaviour")
