"""docs/pipeline.png and docs/advise.png, each also in a narrow form for telephones: `python docs/pictures.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from staleharness.figures.plot_layout import FORMS, reduce_colours, to_bytes
from staleharness.pages.page_parts import picture_file

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "reference" / "vaco_control"


def write_both(folder: Path, name: str, draw: Callable[[float], Figure]) -> None:
    """Write `name`.png and `name`_narrow.png; `draw` gets a width in inches."""
    for form, width in FORMS.items():
        (folder / picture_file(name, form)).write_bytes(reduce_colours(to_bytes(draw(width), "png")))


def draw_pipeline(width: float) -> Figure:
    """Draw the asynchronous pipeline of docs/pipeline.md."""
    from staleharness.figures.timelines import timeline
    from staleharness.pipeline.event_simulation import simulate
    from staleharness.pipeline.pipeline_settings import preset

    settings = {"slots": 64, "batch": 64, "train_seconds": 15, "lengths": "lognormal[mean=1000,cv=1]"}
    return timeline(simulate(preset("async", settings)), "async", width)


def advice_drawing() -> Callable[[float], Figure]:
    """Compute the advice of docs/advise.md, on all its environments, once for both widths."""
    from staleharness.api import load
    from staleharness.figures.score_retention import draw_advice
    from staleharness.pipeline.pipeline_settings import preset
    from staleharness.pipeline.pipeline_summary import over_caps
    from staleharness.statistics.advice import advise

    caps = over_caps(preset("async", {"slots": 128}), [0.0, 1.0, 2.0, 4.0, 8.0])
    advice = advise(load(RESULTS), caps=caps)
    return lambda width: draw_advice(advice, RESULTS.relative_to(HERE.parent).as_posix(), width)


if __name__ == "__main__":
    write_both(HERE, "pipeline", draw_pipeline)
    write_both(HERE, "advise", advice_drawing())
