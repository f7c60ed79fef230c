"""How each algorithm looks, the same in every figure: a colour, a marker and a dash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Colours of Okabe and Ito (2008), told apart with any colour vision; not their yellow, too pale on white.
OWN = {
    "ppo_clip": ("#222222", "o"),
    "vaco": ("#D55E00", "D"),
    "spo": ("#0072B2", "s"),
    "impala": ("#009E73", "^"),
    "ppo_kl": ("#E69F00", "v"),
    "decoupled_ppo": ("#56B4E9", "P"),
    "a3po": ("#CC79A7", "X"),
}
# For everyone else, in order of name: most from Tol's muted scheme, with markers that OWN does not use.
OTHERS = (
    ("#882255", "<"),
    ("#44AA99", ">"),
    ("#332288", "h"),
    ("#999933", "p"),
    ("#7F7F7F", "*"),
    ("#661100", "d"),
    ("#AA4499", "H"),
    ("#117733", "8"),
    ("#2244CC", "."),
)
DASHES = ((), (5, 1.5), (1.5, 1.2), (6, 1.5, 1.5, 1.5))  # in points; the first is solid


@dataclass(frozen=True)
class Style:
    index: int  # place among the algorithms of a report, in order of name
    colour: str
    marker: str
    dashes: tuple[float, ...]
    name: str = ""  # what a figure calls it; empty: its label


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Label -> style. A known algorithm has a colour of its own, wherever and beside whomever it appears.

    Variants (`vaco[delta=0.1]`) and other algorithms follow in order of name; the first variant of a known
    one takes its colour if the plain one is absent. More than there are colours: again from the first,
    dashed.
    """
    out: dict[str, Style] = {}
    taken: set[str] = set()
    others = 0
    for index, label in enumerate(sorted(set(labels))):
        base = label.split("[")[0]
        if base in OWN and base not in taken:
            taken.add(base)
            out[label] = Style(index, *OWN[base], DASHES[0])
        else:
            colour, marker = OTHERS[others % len(OTHERS)]
            out[label] = Style(index, colour, marker, DASHES[others // len(OTHERS) % len(DASHES)])
            others += 1
    return out
