"""The picture of a pipeline at work."""

from __future__ import annotations

from staleharness.figures.plot_layout import to_bytes
from staleharness.figures.timelines import MAX_SLOTS, VERSIONS, timeline
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_settings import preset


def test_a_timeline_shows_trainer_slots_and_queue_by_version() -> None:
    record = simulate(preset("sync", {"steps": 20, "sync_seconds": 5.0, "trainer_mtbf": 20.0}))
    figure = timeline(record, "sync")
    trainer, slots, queue = figure.axes
    begin, end = trainer.get_xlim()
    steps = [i for i, at in enumerate(record.step_start) if begin <= at < end]
    assert len(steps) == 6
    bars = {round(float(bar.get_x()), 6): bar for bar in trainer.patches}
    for step in steps:
        bar = bars[round(float(record.step_start[step]), 6)]
        assert bar.get_facecolor() == _rgba(VERSIONS[step % 4])
    rows = [bar for bar in slots.patches if bar.get_height() < 1]  # and not the bands of a sync
    assert len({round(bar.get_y(), 3) for bar in rows}) == MAX_SLOTS
    assert len(slots.patches) - len(rows) == sum(state == "syncing" for _, _, state in record.trainer)
    # In a synchronous pipeline slots and trainer never work at the same time.
    for bar in rows:
        bar_end = bar.get_x() + bar.get_width()
        overlap = [
            s for s in steps if bar.get_x() < record.step_end[s] - 1e-6 and bar_end > record.step_start[s] + 1e-6
        ]
        assert not overlap
    # The last group of a batch does not wait.
    most = record.pipeline.batch - record.pipeline.group
    assert queue.collections[0].get_datalim(queue.transData).ymax == most
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["down", "syncing"]
    assert to_bytes(figure, "svg") == to_bytes(timeline(record, "sync"), "svg")


def test_a_short_run_is_shown_whole() -> None:
    figure = timeline(simulate(preset("in-flight", {"steps": 2, "slots": 8, "workers": 1})), "in-flight", width=3.5)
    assert len(figure.axes[0].patches) == 2 and figure.legends == []


def _rgba(colour: str) -> tuple[float, float, float, float]:
    from matplotlib.colors import to_rgba

    return to_rgba(colour)
