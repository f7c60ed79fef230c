"""Cells of a log as numbers."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shorten

MISSING = ("", "nan", "null", "none", "na", "n/a")  # cells without a value, in lower case
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)
PIECE = 2**17  # rows of a piece
LARGEST = 1e15  # lag or count, so that their sums stay finite


class LagCells:
    """Cells of one column of lags or counts. `decimal_commas`: `1,5` is a number, as in tables with semicolons or tabs;
    then a column has commas or points, since `1,024` beside `12.5` is a thousand."""

    def __init__(self, where: str, name: str, decimal_commas: bool) -> None:
        self._where, self._name, self._decimal_commas = where, name, decimal_commas
        self._marks: dict[str, str] = {}  # comma or point -> first cell that has it

    def number(self, cell: Any, row: int) -> float:
        """Return the number in a cell, NaN where it is missing. Raises `UserError` for anything else."""
        if cell is None:
            return math.nan
        try:
            is_text = isinstance(cell, str)
            text = self._with_point(cell, row) if is_text and self._decimal_commas else cell
            number = -1.0 if isinstance(cell, bool) else float(text)
        except (TypeError, ValueError, OverflowError):
            number = math.nan if is_text and cell.strip().lower() in MISSING else -1.0
        if number < 0 or number > LARGEST:
            raise UserError(
                f"{self._where}: {shorten(str(cell))!r} in row {row} of {shorten(self._name)!r} is not a lag "
                "(a number from 0 to 1e15)"
            )
        return number

    def _with_point(self, cell: str, row: int) -> str:
        has_comma = DECIMAL_COMMA.fullmatch(cell.strip()) is not None
        if has_comma or "." in cell:
            self._marks.setdefault("," if has_comma else ".", f"{shorten(cell.strip())!r} in row {row}")
            if len(self._marks) > 1:
                raise UserError(
                    f"{self._where}: {shorten(self._name)!r} has {self._marks['.']} and {self._marks[',']}: is the "
                    "comma a decimal sign or does it separate thousands? Write all numbers as 1234.5 or all as 1234,5"
                )
        return cell.replace(",", ".") if has_comma else cell


def step_number(cell: Any) -> float:
    """Return the step in a cell; NaN where it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def pieces(
    rows: Iterable[Sequence[Any]], names: Sequence[str], file: str, decimal_commas: bool, with_steps: bool = False
) -> Iterator[NDArray[np.float64]]:
    """Iterate over rows as numbers: [at most `PIECE`, columns]. `with_steps`: after the cells of `names` a row has its
    step and its run; runs are numbered from 0 as they appear."""
    columns = [LagCells(f"LOG={file}", name, decimal_commas).number for name in names]
    width = len(names) + 2 * with_steps
    limit, runs = PIECE * width, dict[str, int]()
    numbers = array("d")
    for i, row in enumerate(rows, 1):
        for number, cell in zip(columns, row, strict=False):
            numbers.append(number(cell, i))
        if with_steps:
            numbers.append(step_number(row[-2]))
            numbers.append(runs.setdefault(str(row[-1]), len(runs)))
        if len(numbers) >= limit:
            yield np.array(numbers).reshape(-1, width)
            numbers = array("d")
    if numbers:
        yield np.array(numbers).reshape(-1, width)
