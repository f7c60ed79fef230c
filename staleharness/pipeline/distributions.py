"""Distributions of row lengths and of durations: a constant, a lognormal, or values from a file.

Written `constant:512`, `lognormal[mean=1000,cv=1.5]` or `file:lengths.txt`, like a lag model.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.options import Options, build_choice, option, parse_choice_of
from ..base.parsing import user_path
from ..errors import UserError, nearest, one_line, shorten

MAX_VALUE = 1e9  # tokens or seconds: thirty years


@dataclass(frozen=True)
class WorkloadDistribution(Options):
    """Distribution of a non-negative quantity."""

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        """Draw n values [n]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(WorkloadDistribution):
    """Constant value."""

    name: ClassVar[str] = "constant"
    value: float = option(least=0, most=MAX_VALUE)

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        return np.full(n, self.value)


@dataclass(frozen=True)
class Lognormal(WorkloadDistribution):
    """Lognormal distribution, given by its `mean` and `cv`, the standard deviation over the mean."""

    name: ClassVar[str] = "lognormal"
    mean: float = option(above=0, most=MAX_VALUE)
    cv: float = option(1.0, least=0, most=100)

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        variance = math.log1p(self.cv**2)
        return rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), n)


@dataclass(frozen=True)
class Empirical(WorkloadDistribution):
    """Samples with replacement from a file: one number per line, or the column `tokens` of a CSV or Parquet file."""

    name: ClassVar[str] = "file"
    path: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_values", _read(self.path))

    def sample(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._values  # type: ignore[attr-defined]
        return rng.choice(values, n)


KINDS: dict[str, type[WorkloadDistribution]] = {kind.name: kind for kind in (Constant, Lognormal, Empirical)}


def read_distribution(text: str, where: str) -> WorkloadDistribution:
    """Parse a distribution. Raises `UserError`."""
    if (choice := parse_choice_of(text, KINDS, where)) is None:
        raise UserError(f"{where}={shorten(text)} is not a distribution; {nearest(re.split('[:[]', text)[0], KINDS)}")
    return build_choice(*choice, f"{where}={shorten(text)}", where)


def _read(text: str) -> NDArray[np.float64]:
    path = user_path(text)
    if not path.is_file():
        raise UserError(f"file: {text} is not a file")
    try:
        with warnings.catch_warnings(action="ignore"):  # numpy warns of an empty file
            values = (
                _column(path)
                if path.suffix in (".csv", ".parquet")
                else np.loadtxt(path, ndmin=1, encoding="utf-8-sig")
            )
    except UserError:
        raise
    except Exception as error:  # any error that a reader raises for a broken file
        raise UserError(f"file: {text} cannot be read as numbers: {shorten(one_line(error), 100)}") from error
    if values.ndim != 1 or not len(values) or not 0 <= values.min() <= values.max() <= MAX_VALUE:
        raise UserError(f"file: {text} must hold numbers from 0 to {MAX_VALUE:g}, one a line")
    return values


def _column(path: object) -> NDArray[np.float64]:
    import pandas as pd

    table = pd.read_parquet(path) if str(path).endswith(".parquet") else pd.read_csv(path)
    if "tokens" not in table:
        raise UserError(f"file: {path} has no column tokens; {nearest('tokens', map(str, table.columns))}")
    return np.asarray(table["tokens"], np.float64)
