"""How a reader calls a command: through make in a checkout, by the program's name where only the wheel is."""

from __future__ import annotations

from pathlib import Path

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"


def invocation(verb: str, **values: str | bool) -> str:
    """`make figures PAPER=vaco FIG=3`, or `staleharness figures --paper vaco --fig 3`; a switch is true."""
    if MAKEFILE.is_file():
        words = [f"{name.upper()}={1 if value is True else value}" for name, value in values.items()]
        return " ".join(["make", verb, *words])
    words = [f"--{name}" if value is True else f"--{name} {value}" for name, value in values.items()]
    return " ".join(["staleharness", verb, *words])
