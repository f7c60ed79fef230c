"""The policy of a control run as a file, and its use as the start of a run."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.files import stamp
from ..base.parsing import user_path
from ..errors import UserError
from ..store.numpy_policy import POLICY, StoredPolicy, to_bytes

if TYPE_CHECKING:
    import gymnasium

    from .moments import Moments
    from .policy import MLPPolicy


def policy_path(start: str) -> Path:
    """Return the policy's file of a run's folder, or the file itself. Raises `UserError` where there is none."""
    path = user_path(start)
    file = path / POLICY if path.is_dir() else path
    if not file.is_file():
        hint = "give the folder of a finished run, such as results/runs/<id>, or its policy.safetensors"
        raise UserError(f"start={start}: there is no policy; {hint}")
    return file.resolve()


def read_policy(path: Path) -> StoredPolicy:
    """Read a policy, cached until its file changes. Raises `UserError`."""
    return _read(path, stamp(path))[0]


def policy_digest(path: Path) -> str:
    """Return a digest, 16 hex digits, of the content of a policy's file."""
    return _read(path, stamp(path))[1]


@functools.lru_cache(maxsize=8)
def _read(path: Path, file_stamp: tuple[str, int, int, int]) -> tuple[StoredPolicy, str]:
    content = path.read_bytes()
    return StoredPolicy.read(content, f"start={path}"), hashlib.sha256(content).hexdigest()[:16]


def export(policy: MLPPolicy, moments: Moments, vector: gymnasium.vector.VectorEnv, env: str) -> bytes:
    """Return the content of a policy file for the policy as it is now, with its observation statistics."""
    tensors: dict[str, Any] = {}
    for network, weights in (("actor", policy.actor_weights), ("critic", policy.critic_weights)):
        for i, (weight, bias) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            tensors |= {f"{network}.{i}.weight": weight.t(), f"{network}.{i}.bias": bias}
    tensors["actor.log_std"] = policy.log_std
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    arrays |= {f"observation.{name}": np.asarray(value, np.float64) for name, value in moments.state_dict().items()}
    metadata = {"format": "staleharness policy 1", "env": env}
    space: Any = vector.single_action_space
    if hasattr(space, "n"):
        metadata["first_choice"] = str(int(space.start))
    else:
        arrays |= {"action.low": np.asarray(space.low), "action.high": np.asarray(space.high)}
    return to_bytes(arrays, metadata)


def load_into(policy: MLPPolicy, start: StoredPolicy, where: str) -> Moments:
    """Give a run's first policy and critic the weights of a stored one; return its observation statistics.

    Raises `UserError` for networks or actions of another shape.
    """
    import torch

    from .moments import Moments

    for network, weights in (("actor", policy.actor_weights), ("critic", policy.critic_weights)):
        arrays = [array for weight, bias in start.layers(network) for array in (weight.T, bias)]
        shapes, expected = [array.shape for array in arrays], [tuple(weight.shape) for weight in weights]
        if shapes != expected:
            raise UserError(f"start={where}: its {network} has layers {shapes}, and this run's {expected}")
        for weight, array in zip(weights, arrays, strict=True):
            weight.copy_(torch.from_numpy(np.ascontiguousarray(array)))
    log_std = start.tensors["actor.log_std"]
    if log_std.shape != tuple(policy.log_std.shape):
        raise UserError(f"start={where}: its actions are of another kind than this run's")
    policy.log_std.copy_(torch.from_numpy(log_std))
    count, mean, variance = (start.tensors[f"observation.{name}"] for name in ("count", "mean", "variance"))
    moments = Moments(
        float(count), torch.from_numpy(mean.astype(np.float64)), torch.from_numpy(variance.astype(np.float64))
    )
    policy.set_statistics(moments)
    return moments
