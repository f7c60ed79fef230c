"""One option of a method or of its runs, varied: its value by label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base.parsing import AlgorithmChoice, parse_algorithm
from ..errors import UserError
from ..store.stored_run import StoredRun


def option_values(runs: Iterable[StoredRun], option: str) -> dict[str, Any]:
    """{label: value of the option in that label's runs}; labels whose method lacks it are left out.

    Raises `UserError` where no run has it, or runs of one label differ in it.
    """
    found: dict[str, set[Any]] = {}
    for run in runs:
        spec = run.record["spec"]
        value = spec.get("hyper", {}).get(option, spec.get(option))
        if value is not None:
            found.setdefault(run.label, set()).add(value)
    if not found:
        raise UserError(f"option={option!r}: no run here has it")
    if mixed := [label for label, values in found.items() if len(values) > 1]:
        raise UserError(f"option={option!r} differs among runs of {', '.join(sorted(mixed))}")
    return {label: values.pop() for label, values in found.items()}


def without_option(label: str, option: str) -> str:
    """The label of a method apart from one of its options: what a line over that option is called.

    N, the forward lag, stands behind the brackets: `vaco[delta=0.05] N=4`.
    """
    plain, _, _ = label.partition(" N=")
    if "[" not in plain:
        return plain
    choice = parse_algorithm(plain)
    return AlgorithmChoice(choice.name, {k: v for k, v in choice.options.items() if k != option}).label
