"""Base class, registry and notation of mismatch models: a changed copy of the trainer's policy samples.

A model changes the matrices of a version (`matrix`) or the logits that actions are drawn from (`logits`), or both.
`fp8+sampling[top_p=0.95]` applies both models, in this order.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .base.options import Options, active_options, build_choice, canonical_text, parse_choice_of, text_by_content
from .base.options import option as option
from .base.plugins import Registry, source_hash
from .base.streams import stream
from .errors import UserError, nearest, shorten

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

PLUS = re.compile(r"\+(?=[^\W\d])(?![^\[]*\])")  # before a name, outside of brackets: not that of 1e+16
NONE = "none"
"""Value of MISMATCH where the trainer's own policy samples."""


@dataclass(frozen=True)
class Place:
    """Place of a matrix: its name in the policy, the version that it belongs to, and the seed of the run."""

    name: str
    version: int
    seed: int

    def generator(self, fixed: bool = False) -> np.random.Generator:
        """Return a fresh generator for this matrix; `fixed`: the same for every version."""
        indices = (zlib.crc32(self.name.encode()), *(() if fixed else (self.version,)))
        return stream(self.seed, "mismatch/fixed" if fixed else "mismatch", *indices)


@dataclass(frozen=True)
class Mismatch(Options):
    """Difference between the policy that samples and the version that it is a copy of.

    Subclass it as a frozen dataclass whose fields are its options, and define `matrix` or `logits`.
    """

    paper: ClassVar[str] = ""
    """Source of the model: authors, year, identifier."""

    @classmethod
    def check_class(cls, where: str) -> None:
        super().check_class(where)
        if not (cls.changes_weights() or cls.changes_logits()):
            raise UserError(f"{where} defines neither matrix(self, weight, place) nor logits(self, logits)")

    @property
    def raw(self) -> bool:
        """True where the sampler reports log-probabilities of its logits as they were before `logits` changed them."""
        return False

    @property
    def temperature(self) -> float:
        """Temperature that `logits` divides by, for policies of real-valued actions, which have no logits."""
        return 1.0

    @property
    def truncates(self) -> bool:
        """True where `logits` gives some actions probability 0."""
        return False

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        """Return the sampler's copy of a matrix [out, in], or of experts [E, out, in], as a new tensor. Must be
        deterministic: take random numbers from `place.generator()`."""
        return weight

    def logits(self, logits: Tensor) -> Tensor:
        """Return the logits [B, V] that tokens are drawn from, as a new tensor; no row may depend on another."""
        return logits

    @classmethod
    def changes_weights(cls) -> bool:
        """Return whether the model changes matrices."""
        return cls.matrix is not Mismatch.matrix

    @classmethod
    def changes_logits(cls) -> bool:
        """Return whether the model changes logits."""
        return cls.logits is not Mismatch.logits

    @property
    def text(self) -> str:
        """Canonical text, which enters run ids."""
        return canonical_text(self)

    @classmethod
    def title(cls) -> str:
        return f"MISMATCH={cls.name}"


MISMATCHES: Registry[type[Mismatch]] = Registry("mismatches", Mismatch)


def read_mismatch(text: str) -> tuple[Mismatch, ...]:
    """Parse `name`, `name:value`, `name[option=value,...]` or several of them joined by `+`; `none` gives none.

    Raises `UserError`, also where a model is named twice.
    """
    models = () if text.strip() == NONE else tuple(map(_read, PLUS.split(text.strip())))
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"MISMATCH={shorten(text)!r} names {twice[0]} twice; name each model once")
    return models


def _read(text: str) -> Mismatch:
    if (choice := parse_choice_of(text, MISMATCHES, "MISMATCH")) is None:
        name = text.split("[")[0].split(":")[0]
        extra = "; give none alone, without options" if name == NONE else f"; {nearest(name, {NONE, *MISMATCHES})}"
        raise UserError(f"MISMATCH={shorten(text)!r} is not a mismatch model{extra}")
    return build_choice(*choice, f"MISMATCH={shorten(text)}", choice[0].title())


def mismatch_text(models: Sequence[Mismatch]) -> str:
    """Return the canonical text of models."""
    return "+".join(model.text for model in models) or NONE


def mismatch_hash(text: str) -> str:
    """Return the hash of the models' files, so that an edit expires their runs; empty without models."""
    return "+".join(source_hash(type(model), active_options(model)) for model in read_mismatch(text))


def mismatch_identity(text: str) -> str:
    """Return the text of models in run ids, with the digest of a file in place of its name; empty where that is their
    usual text."""
    models = read_mismatch(text)
    identity = "+".join(text_by_content(model, ()) for model in models)
    return "" if identity == "+".join(model.text for model in models) else identity
