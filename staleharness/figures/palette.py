"""Looks of algorithms, the same in every figure: a colour, a marker and a dash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Colours of Okabe and Ito (2008), told apart with any colour vision; not their yellow, too pale on white.
ALGORITHM_COLOURS = {
    "ppo_clip": ("#222222", "o"),
    "vaco": ("#D55E00", "D"),
    "spo": ("#0072B2", "s"),
    "impala": ("#009E73", "^"),
    "ppo_kl": ("#E69F00", "v"),
    "decoupled_ppo": ("#56B4E9", "P"),
    "a3po": ("#CC79A7", "X"),
}
# For everyone else, in order of name: searched for so that all fourteen stay apart in simulations of red- and of
# green-blind eyes (tests/figures/test_palette.py), with markers that ALGORITHM_COLOURS does not use.
SPARE_COLOURS = (
    ("#23008B", "<"),
    ("#B3BE68", ">"),
    ("#E72656", "h"),
    ("#66440B", "p"),
    ("#2778FF", "*"),
    ("#5A175A", "d"),
    ("#DDB6B0", "H"),
)
LIGHT_TO_DARK = ("#A9CCE3", "#0A2A4A")  # of values in order
MARKERS = "osD^vPX<>"
DASHES = ((), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5))  # in points; the first is solid


@dataclass(frozen=True)
class Style:
    """Appearance of an algorithm in figures."""

    index: int  # place among the algorithms of a report, in order of name
    colour: str
    marker: str
    dashes: tuple[float, ...]
    name: str = ""  # what a figure calls it; empty: its label


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Style by label. An algorithm in `ALGORITHM_COLOURS` has its colour in every figure.

    Variants (`vaco[delta=0.1]`) and other algorithms follow in order of name; the first variant of a known
    one takes its colour if the plain one is absent. After `SPARE_COLOURS` come the colours of known ones that are
    absent; more than there are colours: again from the first, dashed.
    """
    names = sorted(set(labels))
    bases = {_base(label) for label in names}
    spare = [*SPARE_COLOURS, *(look for name, look in ALGORITHM_COLOURS.items() if name not in bases)]
    out: dict[str, Style] = {}
    bases_in_use: set[str] = set()
    others = 0
    for index, label in enumerate(names):
        base = _base(label)
        if base in ALGORITHM_COLOURS and base not in bases_in_use:
            bases_in_use.add(base)
            out[label] = Style(index, *ALGORITHM_COLOURS[base], DASHES[0])
        else:
            colour, marker = spare[others % len(spare)]
            out[label] = Style(index, colour, marker, DASHES[others // len(spare) % len(DASHES)])
            others += 1
    return out


def _base(label: str) -> str:
    """Algorithm of a label, without its options and its forward lag."""
    return label.split("[")[0].split(" N=")[0]


def sequential_styles(values: Mapping[str, Any]) -> dict[str, Style]:
    """Label -> style, of labels that are the values of one option: sorted by value, from light to dark."""
    labels = sorted(values, key=lambda label: (isinstance(values[label], str), values[label]))
    low, high = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in LIGHT_TO_DARK)
    out = {}
    for at, label in enumerate(labels):
        part = at / max(1, len(labels) - 1)
        colour = "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(low, high, strict=True))
        out[label] = Style(at, colour, MARKERS[at % len(MARKERS)], DASHES[0])
    return out
