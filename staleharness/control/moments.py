"""Running mean and variance, and the two things a run scales with them: observations and rewards.

Both change only between phases; a change of observation statistics is itself a change of the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

CLIP = 10.0  # after scaling, as in CleanRL's wrappers
EPSILON = 1e-8


@dataclass(frozen=True)
class Moments:
    """Mean and variance per feature [D] in float64, with the number of samples they are taken over."""

    count: float
    mean: Tensor
    variance: Tensor

    @classmethod
    def initial(cls, size: int) -> Moments:
        return cls(0.0, torch.zeros(size, dtype=torch.float64), torch.ones(size, dtype=torch.float64))

    def with_samples(self, samples: Tensor) -> Moments:
        """Return the moments with `samples` [N, D] added (Chan et al. 1979, parallel update)."""
        if not len(samples):
            return self
        batch = samples.double()
        n = float(batch.shape[0])
        mean, variance = batch.mean(0), batch.var(0, correction=0)
        if self.count == 0:
            return Moments(n, mean, variance)
        total = self.count + n
        shift = mean - self.mean
        spread = self.variance * self.count + variance * n + shift.square() * (self.count * n / total)
        return Moments(total, self.mean + shift * (n / total), spread / total)

    def scaling(self) -> tuple[Tensor, Tensor]:
        """(mean, 1/std) in float32, both [D]."""
        return self.mean.float(), (self.variance + EPSILON).rsqrt().float()

    def state_dict(self) -> dict[str, float | Tensor]:
        return {"count": self.count, "mean": self.mean, "variance": self.variance}


def discounted_returns(reward: Tensor, done: Tensor, carry: Tensor, discount: float) -> tuple[Tensor, Tensor]:
    """Σ γ^k r_{t−k} since the episode began [T, B] from raw rewards and episode ends [B, T], and what is carried over
    to the next ones [B], as `carry` was to these."""
    steps, keep = reward.double().t().numpy(), (~done).double().t().contiguous().numpy()
    returns, sum_so_far = np.empty(steps.shape), carry.numpy()  # small operations are cheaper in NumPy
    with np.errstate(over="ignore", invalid="ignore"):  # a reward that is not finite is named elsewhere
        for t, step in enumerate(steps):
            returns[t] = sum_so_far = sum_so_far * discount + step
            sum_so_far = sum_so_far * keep[t]
    return torch.from_numpy(returns), torch.from_numpy(sum_so_far)


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return, one statistic for all
    environments, applied to a whole phase at once.

    The accumulator starts anew with every episode. (CleanRL keeps one statistic per environment, changes it at
    every step, and lets the accumulator run on across truncations.)
    """

    def __init__(self) -> None:
        self.moments = Moments.initial(1)

    def update(self, returns: Tensor) -> None:
        """Take in returns [T, B] as `discounted_returns` gives them."""
        self.moments = self.moments.with_samples(returns.reshape(-1, 1))

    def __call__(self, reward: Tensor) -> Tensor:
        """Scaled and clipped rewards, float32, any shape."""
        if self.moments.count == 0:
            return reward.float()
        scale = (self.moments.variance + EPSILON).rsqrt().to(reward.device)
        return (reward.double() * scale).clamp(-CLIP, CLIP).float()

    def state_dict(self) -> dict[str, object]:
        return {"moments": self.moments.state_dict()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.moments = Moments(**state["moments"])  # type: ignore[arg-type]
