"""The picture of real actors and the trainer at work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from staleharness.figures import timelines as drawing
from staleharness.figures.registry import draw
from staleharness.figures.timelines import MIXTURE, TRAINER, VERSIONS, work_of
from staleharness.statistics.results import Results
from staleharness.store.store import Store


def test_work_of_a_trace_is_that_of_groups_and_of_trained_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pd.DataFrame(
        {
            "group": [0, 0, 1, 2, 3],
            "actor": [0, 0, 1, 0, 1],
            "phase": [0, 0, 0, 1, -1],
            "versions": [np.array([0]), np.array([0]), np.array([0]), np.array([0, 1]), np.array([1])],
            "began_at": [1.0, 1.5, 1.0, 4.0, 6.0],
            "made_at": [2.0, 3.0, 3.5, 5.0, np.nan],  # the last one is not made
            "trained_at": [4.0, 4.0, 4.0, 7.0, np.nan],
        }
    )
    monkeypatch.setattr(drawing, "read_trace", lambda path: ({"published_at": [6.0, 7.5]}, rows))
    work = work_of(SimpleNamespace(trace="trace.parquet"))  # type: ignore[arg-type]
    assert work is not None
    spans = zip(work.lane.tolist(), work.begin.tolist(), work.end.tolist(), work.version.tolist(), strict=True)
    assert sorted(spans) == [
        (TRAINER, 4.0, 6.0, 0),
        (TRAINER, 7.0, 7.5, 1),
        (0, 1.0, 3.0, 0),
        (0, 4.0, 5.0, 0),
        (1, 1.0, 3.5, 0),
    ]
    assert work.seconds_a_phase == 3.0
    assert work.share(TRAINER, 4.0, 8.0) == 2.5 / 4 and work.share(0, 2.0, 4.5) == 1.5 / 2.5


@pytest.mark.parametrize(("lags", "acting"), [({"0": 5}, [0, 1]), ({"0": 1, "1": 4}, [MIXTURE, MIXTURE])])
def test_without_a_trace_actor_and_trainer_take_turns(lags: dict[str, int], acting: list[int]) -> None:
    seconds = {"seconds/collect": [1.0, 2.0], "seconds/learn": [3.0, 1.0], "seconds/evaluate": [0.5, 0.0]}
    run: Any = SimpleNamespace(trace=None, column=lambda name: np.array(seconds[name]), record={"lag_histogram": lags})
    work = work_of(run)
    assert work is not None
    actor, trainer = work.of(0), work.of(TRAINER)
    assert actor.begin.tolist() == [0.0, 4.5] and actor.end.tolist() == trainer.begin.tolist() == [1.0, 6.5]
    assert trainer.end.tolist() == [4.0, 7.5] and trainer.version.tolist() == [0, 1]
    assert actor.version.tolist() == acting


def test_the_figure_has_a_lane_for_each_actor_and_the_trainer() -> None:
    stored = Store(Path(__file__).resolve().parents[2] / "results/reference/real_lag").read_all()
    place = {"env": "word-problems", "lag": "async[queue=4.0,train=1.0]", "seed": 0}
    runs = [run for run in stored if run.trace and place.items() <= run.spec.items()]
    figure = draw("actors_and_trainer", Results.of(runs))
    assert len(figure.axes) == len({run.label for run in runs}) == 3
    for ax in figure.axes:
        lanes = [text.get_text().split(",")[0] for text in ax.get_yticklabels()]
        assert lanes[-1] == "trainer" and lanes[0] == "actor 0"
        colours = {bar.get_facecolor()[:3] for bar in ax.patches}
        assert 1 < len(colours) <= len(VERSIONS)


def test_the_title_says_how_many_of_the_actors_are_drawn() -> None:
    stored = Store(Path(__file__).resolve().parents[2] / "results/reference/real_lag").read_all()
    runs = [run for run in stored if run.trace and run.spec["seed"] == 0 and "actors=14" in run.spec["lag"]]
    titles = [ax.get_title(loc="left") for ax in draw("actors_and_trainer", Results.of(runs)).axes]
    assert titles and all(title.endswith("s a phase, 8 of 14 actors") for title in titles)
