"""Policy of a finished control run in a plain safetensors file, and the policy read back, with NumPy alone.

The format (huggingface.co/docs/safetensors): 8 bytes with the length of a JSON header, the header (name -> dtype,
shape, place; strings in `__metadata__`), then the numbers. Weights are stored as `torch.nn.Linear` has them, [out, in]:
`actor.0.weight`, `actor.0.bias`, ..., `critic.0.weight`, ..., `actor.log_std`, and `observation.mean`, `.variance` and
`.count`, over which observations are standardised.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..base.text_formatting import plural
from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

POLICY = "policy.safetensors"
DTYPES = {"F32": "<f4", "F64": "<f8"}
MAX_HEADER = 1_000_000  # bytes
CLIP, EPSILON = 10.0, 1e-8  # of standardised observations, as `control.moments` has them


def to_bytes(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file: arrays of float32 and float64 by name, and texts."""
    import numpy as np

    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    numbers = b""
    for name, tensor in tensors.items():
        dtype = "F64" if tensor.dtype == np.float64 else "F32"
        content = np.ascontiguousarray(tensor, DTYPES[dtype]).tobytes()
        offsets = [len(numbers), len(numbers) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        numbers += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + numbers


def from_bytes(content: bytes, where: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read such a file: (arrays by name, texts). Raises `UserError` for other content."""
    import numpy as np

    try:
        length = int.from_bytes(content[:8], "little")
        if not 0 < length <= min(MAX_HEADER, len(content) - 8):
            raise ValueError("no header")
        header, numbers = json.loads(content[8 : 8 + length]), content[8 + length :]
        metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
        tensors = {}
        for name, entry in header.items():
            (first, last), shape = entry["data_offsets"], [int(size) for size in entry["shape"]]
            dtype = np.dtype(DTYPES[entry["dtype"]])
            if not 0 <= first <= last <= len(numbers) or last - first != math.prod(shape) * dtype.itemsize:
                raise ValueError(name)
            tensors[name] = np.frombuffer(numbers[first:last], dtype).reshape(shape).copy()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where} is not a safetensors file of a policy") from error
    return tensors, metadata


@dataclass(frozen=True)
class StoredPolicy:
    """Policy of a finished run: tanh layers over standardised observations, and a normal or a categorical on top.

    tensors: weights and observation statistics by name. env: the id of its environment.
    """

    tensors: Mapping[str, NDArray[Any]]
    env: str
    first_choice: int | None  # lowest action of a Discrete space; None for a Box

    @classmethod
    def read(cls, content: bytes, where: str) -> StoredPolicy:
        """Read the content of a policy's file. Raises `UserError` for other content."""
        tensors, metadata = from_bytes(content, where)
        layers = [name for net in ("actor", "critic") for name in (f"{net}.0.weight", f"{net}.0.bias")]
        statistics = [f"observation.{name}" for name in ("mean", "variance", "count")]
        if absent := [name for name in (*layers, *statistics, "actor.log_std") if name not in tensors]:
            raise UserError(f"{where} is not a policy of this program: it lacks {absent[0]}")
        first = metadata.get("first_choice", "")
        if first and not first.lstrip("-").isdecimal():
            raise UserError(f"{where} is not a policy of this program: first_choice={first[:20]!r} is no number")
        return cls(tensors, metadata.get("env", ""), int(first) if first else None)

    def layers(self, network: str) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return (weight [out, in], bias [out]) of each layer of `actor` or `critic`."""
        count = sum(name.startswith(f"{network}.") and name.endswith(".weight") for name in self.tensors)
        return [tuple(self.tensors[f"{network}.{i}.{part}"] for part in ("weight", "bias")) for i in range(count)]  # type: ignore[misc]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the tanh layers."""
        return tuple(len(bias) for _, bias in self.layers("actor")[:-1])

    @property
    def spaces(self) -> str:
        """Sizes of observations and actions: `3 observations and 2 choices`."""
        layers = self.layers("actor")
        actions = "choice" if self.first_choice is not None else "action"
        return f"{plural(layers[0][0].shape[1], 'observation')} and {plural(len(layers[-1][1]), actions)}"

    def act(self, observation: NDArray[Any], rng: np.random.Generator | None = None) -> NDArray[Any]:
        """Return actions [N, A], or choices [N], for raw observations [N, D]; without N for one observation [D].

        The most likely action, or with `rng` a sampled one. Actions of a Box are clipped to its bounds.
        """
        import numpy as np

        x = self._forward("actor", observation)
        if self.first_choice is not None:
            noise = 0.0 if rng is None else rng.gumbel(size=x.shape)
            return np.asarray((x + noise).argmax(-1) + self.first_choice)
        if rng is not None:
            x = x + np.exp(self.tensors["actor.log_std"]) * rng.standard_normal(x.shape)
        low, high = self.tensors["action.low"], self.tensors["action.high"]
        return np.asarray(x.clip(low, high), np.float32)

    def value(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the critic's V [N] of raw observations [N, D], in units of scaled rewards."""
        value: NDArray[Any] = self._forward("critic", observation)[..., 0]
        return value

    def _forward(self, network: str, observation: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        mean, variance = self.tensors["observation.mean"], self.tensors["observation.variance"]
        x = np.clip((np.asarray(observation) - mean) / np.sqrt(variance + EPSILON), -CLIP, CLIP)
        *layers, (weight, bias) = self.layers(network)
        for w, b in layers:
            x = np.tanh(x @ w.T + b)
        return np.asarray(x @ weight.T + bias)
