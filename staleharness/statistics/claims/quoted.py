"""Numbers in a text, computed from runs: `VACO ends at {iqm vaco K=16}` becomes `VACO ends at 0.19 [0.17, 0.20]`.

    {QUANTITY [LABEL] [OPTION=VALUE ...] [plain]}

QUANTITY is one of `quantities.py`, a measure (`measured.measure`: score, area, return, kept, seconds) or a
column of the metrics. Options: K, env, study, over=LABEL (the difference from it, seed by seed; with as=ratio their
ratio), over_k, phases=10:50, reduce, digits, as=%, level. From five runs of a cell on there is an interval; fewer stand
in parentheses themselves, where they are of one environment. `plain`: the number alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import UserError
from .asked import read
from .measured import Evidence
from .quantities import WORDS, number, words


def filled(text: str, evidence_of: Callable[[str], Evidence]) -> str:
    """A text with its numbers; `evidence_of` gives the runs of a study, of the figure's own by ``""``. Raises
    `UserError` naming the braces."""

    def one(found: re.Match[str]) -> str:
        try:
            asked = read(found[1])
            evidence = evidence_of(asked.options.get("study", ""))
            if asked.what in WORDS:
                return words(asked, evidence)
            return number(asked, evidence).text(asked)
        except (UserError, ValueError) as error:  # a ValueError: K=x, phases=1:y
            raise UserError(f"{{{found[1]}}}: {error}") from None

    return re.sub(r"\{([^{}]+)\}", one, text)
