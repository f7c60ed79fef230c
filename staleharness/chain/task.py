"""Base class of chain plugins: when an episode of binary decisions has succeeded, and how likely that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..spec import RunSpec
from ..task import Task
from .spec import ChainSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ChainTask(Task):
    """A family of tasks on H binary decisions with one outcome at the end."""

    kind: ClassVar[str] = "chain"
    settings: ClassVar[type[RunSpec]] = ChainSpec
    measures: ClassVar[dict[str, str]] = {"sampled": "success probability", "deterministic": "greedy success"}
    normalise: ClassVar[str] = "raw"
    axes: ClassVar[dict[str, str]] = {"N": "minibatches"}
    provides: ClassVar[frozenset[str]] = frozenset({"groups", "logit_norm", "reference"})

    entry_point: ClassVar[str] = "staleharness.chain.simulation:simulation"
    preload: ClassVar[tuple[str, ...]] = ("staleharness.chain.simulation",)

    def outcome(self, spec: ChainSpec, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return [B], True where an episode of these decisions [B, H] has succeeded."""
        raise NotImplementedError(f"{type(self).__name__} must define outcome(spec, bits)")

    def success_probability(self, spec: ChainSpec, p: NDArray[np.float64]) -> float:
        """Return the probability of success where decisions are 1 with the probabilities p [H], independently."""
        raise NotImplementedError(f"{type(self).__name__} must define success_probability(spec, p)")

    def start(self, spec: ChainSpec) -> float:
        """Return the first policy's probability of a 1, the same at every decision."""
        raise NotImplementedError(f"{type(self).__name__} must define start(spec)")
