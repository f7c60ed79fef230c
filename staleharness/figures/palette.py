"""Looks of algorithms, the same in every figure: a colour, a marker, a dash and a name for readers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.parsing import without_n
from ..statistics.method_labels import display_label
from ..statistics.table import Table

# Colours of Okabe and Ito (2008), distinguishable with any colour vision, except their yellow, too pale on white.
ALGORITHM_COLOURS = {
    "ppo_clip": ("#222222", "o"),
    "vaco": ("#D55E00", "D"),
    "spo": ("#0072B2", "s"),
    "impala": ("#009E73", "^"),
    "ppo_kl": ("#E69F00", "v"),
    "decoupled_ppo": ("#56B4E9", "P"),
    "a3po": ("#CC79A7", "X"),
}
# For all other methods, in order of name: found by a search so that all fourteen stay distinct in simulations of red-
# and of green-mismatch_warning (tests/figures/test_palette.py), with markers that ALGORITHM_COLOURS does not use.
SPARE_COLOURS = (
    ("#23008B", "<"),
    ("#B3BE68", ">"),
    ("#E72656", "h"),
    ("#66440B", "p"),
    ("#2778FF", "*"),
    ("#5A175A", "d"),
    ("#DDB6B0", "H"),
)
# Methods of further papers: a row per dash, a column per colour of `SPARE_COLOURS`. Those of a published study stand in
# different columns where they fit. A method added later takes a free place.
OTHER_METHODS = (
    ("otb", "cispo", "tis", "seq_is", "vcpo", "m2po", "topr"),
    ("mis_seq", "deepseek_mask", "appo", "mis_geo", "espo", "icepop", "gspo"),
    ("dppo", "geppo", "k3_rejection", "p3o", "tba", "minirl", "verl"),
    ("aspo", "bapo", "ce_gppo", "dcpo", "dg", "gmpo", "oapl"),
    ("ipo", "prime_rl", "sapo", "truly_ppo", "vespo", "gac"),
)
WITHOUT_LAG = "ppo_clip[lag=fixed:0]"  # reference in studies of stale data: PPO-clip's colour, dashed
ROW_MARKERS = ("", "s", "^", "o", "D")  # of a row; the first has those of its colours
LIGHT_TO_DARK = ("#8FBDDD", "#06203C")  # of values in order; the first has a contrast of 2:1 with white
READABLE = 1.05 / 4.5 - 0.05  # highest luminance of text on white: a contrast of 4.5:1 (WCAG 2)
MARKERS = "osD^vPX<>"
DASHES = ((), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5), (5, 1.2, 1.2, 1.2, 1.2, 1.2))  # in points; the first is solid


@dataclass(frozen=True)
class Style:
    """Appearance of an algorithm in figures."""

    index: int  # place among the algorithms of a report, in order of name
    colour: str
    marker: str
    dashes: tuple[float, ...]
    name: str = ""  # display name; empty: its label


Look = tuple[str, str, tuple[float, ...]]  # colour, marker, dashes


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Style by label. A method of `ALGORITHM_COLOURS` or `OTHER_METHODS` has its look in every figure.

    Variants (`vaco[delta=0.1]`) and unknown methods follow in order of name; the first variant of a known method takes
    its look if the plain one is absent. The others take colours that no method of this figure has: `SPARE_COLOURS`
    first, then those of known ones, then all of these with other dashes; no look repeats before all are used.
    """
    names = sorted(set(labels))
    fixed = method_looks()
    in_use = [fixed[base] for base in {_base(label) for label in names} if base in fixed]
    colours, pairs = {look[0] for look in in_use}, {look[::2] for look in in_use}
    free = [look for look in _looks() if look[::2] not in pairs]
    spare = itertools.cycle(sorted(free, key=lambda look: look[0] in colours))
    out: dict[str, Style] = {}
    bases_in_use: set[str] = set()
    for index, label in enumerate(names):
        base = _base(label)
        is_first = base in fixed and base not in bases_in_use
        out[label] = Style(index, *(fixed[base] if is_first else next(spare)))
        bases_in_use.add(base)
    return out


@functools.cache
def method_looks() -> dict[str, Look]:
    """Look of each known method; no two have the same colour and dashes."""
    looks: dict[str, Look] = {name: (*look, DASHES[0]) for name, look in ALGORITHM_COLOURS.items()}
    for row, dashes, marker in zip(OTHER_METHODS, DASHES, ROW_MARKERS, strict=True):
        for name, (colour, colour_marker) in zip(row, SPARE_COLOURS, strict=False):
            looks[name] = (colour, marker or colour_marker, dashes)
    looks[WITHOUT_LAG] = (ALGORITHM_COLOURS["ppo_clip"][0], ROW_MARKERS[1], DASHES[1])
    return looks


def _looks() -> Iterator[Look]:
    colours = [*SPARE_COLOURS[:-1], *ALGORITHM_COLOURS.values(), SPARE_COLOURS[-1]]  # the palest last
    for dashes, marker in zip(DASHES, ROW_MARKERS, strict=True):
        for colour, colour_marker in colours:
            yield colour, marker or colour_marker, dashes


def text_colour(colour: str) -> str:
    """The colour for text on white: a pale one is darkened until it can be read."""
    channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    while _luminance(channels) > READABLE:
        channels = [round(0.97 * c) for c in channels]
    return "#" + "".join(f"{c:02X}" for c in channels)


def _luminance(channels: list[int]) -> float:
    """Relative luminance of sRGB, 0 to 1 (WCAG 2)."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _base(label: str) -> str:
    """Algorithm of a label, without its options and its forward lag; a label with a look of its own is one."""
    return label if label == WITHOUT_LAG else without_n(label).partition("[")[0]


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


def labels(table: Table) -> list[str]:
    """Algorithms of a table, in the order in which figures show them."""
    return sorted({r["algorithm"] for r in table.rows})


def looks_of(table: Table) -> dict[str, Style]:
    """Look of each algorithm of a table, with its name for readers. In a part of a larger table (`series`) it looks as
    it does there; `values` of an option are ordered from light to dark; `names` are the figure's own for some."""
    names, values = table.settings.get("names", {}), table.settings.get("values", {})
    algorithms = labels(table)
    if values and set(algorithms) <= set(values):
        looks = sequential_styles({label: values[label] for label in algorithms})
    else:
        all_styles = styles([*table.settings.get("series", ()), *algorithms])
        looks = {label: all_styles[label] for label in algorithms}
    return with_names(looks, names)


def with_names(looks: Mapping[str, Style], names: Mapping[str, str] | None = None) -> dict[str, Style]:
    """Give looks their names for readers; `names` {label: text} take precedence."""
    return {label: replace(look, name=display_label(label, names)) for label, look in looks.items()}


def looks_of_curves(table: Table, names: Iterable[str]) -> dict[str, Style]:
    """Looks of curves against lag, which join rows that differ in lag alone and name the lag model if there are
    several: those of rows with the same names, or else new ones."""
    looks, names = looks_of(table), sorted(set(names))
    if not set(names) <= set(looks):
        looks = with_names(styles(names), table.settings.get("names"))
    return {name: look for name, look in looks.items() if name in names}
