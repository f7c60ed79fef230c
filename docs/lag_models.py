"""docs/lag_models.md: every lag model, from its file.

    python docs/lag_models.py

A test asserts that the committed page is what this writes.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from staleharness.base.parsing import value_text
from staleharness.base.plugins import builtin_folder, source_file
from staleharness.lag import DRAWN, LAGS, LagModel
from staleharness.pipeline_lag_model import PipelineLag

PAGE = Path(__file__).with_suffix(".md")
# Options that all simulated models share.
LOAD = ("slots", "row_time", "cv", "sync_time", "pace", "slow", "slow_factor")


def page() -> str:
    """The page as text."""
    own = builtin_folder("lags").resolve()
    models = [cls for cls in map(LAGS.__getitem__, LAGS) if Path(source_file(cls)).parent == own]
    parts = [
        "<!-- Made by docs/lag_models.py from the files in staleharness/lags/: edit those. -->",
        "# Lag models, one by one",
        "A lag model decides which past version of the policy makes which data. Choose one with "
        "`LAG='name[option=value,...]'`, or `name:value` for the first option. Lag and its measures: "
        "[staleness.md](staleness.md). The simulation and its validation: "
        "[pipeline.md](pipeline.md). Models that name a source by its commit agree with a simulation of that code, row "
        "by row ([tests/lags/test_sources.py](../tests/lags/test_sources.py)). Adding one: [plugins.md](plugins.md).",
    ]
    families = dict.fromkeys([DRAWN, *sorted(cls.listed_under() for cls in models)])
    for family in families:
        parts.append(f"## {family.capitalize()}")
        if family == PipelineLag.family:
            parts.append(
                "All of these also have `slots` (rows generated at once, in batches; 2), `row_time` (mean time of a "
                "row, in training steps; 1), `cv` (standard deviation of that time over its mean; 0.5) and "
                "`sync_time` (time until new weights have arrived, in training steps; 0). With `slow` (a share; 0) "
                "some slots are permanently slow, in whole groups; rows there take `slow_factor` (above 1) times as "
                "long. These models need a buffer as long as the longest lag that results, and name the K to set. On "
                "tokens, "
                "`pace=length` makes the time of a row follow the length of its completion: "
                "[pipeline.md](pipeline.md#as-a-lag-model)."
            )
        parts += [section(cls) for cls in models if cls.listed_under() == family]
    return "\n\n".join(parts) + "\n"


def section(cls: type[LagModel]) -> str:
    file = Path(source_file(cls)).name
    shared = LOAD if issubclass(cls, PipelineLag) else ()
    options = {key: value for key, value in cls.hyper_parameters().items() if key not in shared}
    parts = [f"### `{cls.usage()}`", inspect.cleandoc(cls.__doc__ or "")]
    if options:
        parts.append("Options: " + ", ".join(f"`{key}={value_text(value)}`" for key, value in options.items()) + ".")
    source = f"Source: {cls.paper}. " if cls.paper else ""
    parts.append(f"{source}[staleharness/lags/{file}](../staleharness/lags/{file})")
    return "\n\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
