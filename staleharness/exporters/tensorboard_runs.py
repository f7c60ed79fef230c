"""TensorBoard: one folder per run with one event file, written with the package tensorboard alone.

Times are those of the run (its date, then its own clock), so that TensorBoard's relative time axis is correct and the
same run gives the same bytes.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.files import remove_temporaries, write_bytes
from ..store.run_grid import cell_of
from ..store.stored_run import StoredRun
from .exporter import EXPORTERS, HISTOGRAM, final_scores, phases, settings


@EXPORTERS.register("tensorboard", "tensorboard --logdir {folder}", extra="tensorboard")
def write(runs: Iterable[StoredRun], folder: Path) -> list[Path]:
    """Write `<folder>/<env>/K<k>/<algorithm>/seed<s>-<id>/events.out.tfevents.<id>` of each run.
    Raises `UserError`, before anything is written, for a run whose tables are damaged."""
    runs = list(runs)
    for run in runs:
        phases(run)
    return [_write(run, folder) for run in runs]


def _write(run: StoredRun, folder: Path) -> Path:
    cell = cell_of(run)
    parts = (cell.env, f"K{cell.capacity}", cell.label, f"seed{run.spec['seed']}-{run.id}")
    # The id keeps folders apart; the rest is for people: a name cannot climb out of the folder or be too long for one.
    path = folder.joinpath(*(re.sub(r"[^\w+=,\[\].-]|^\.", "_", part)[:120] for part in parts))
    path.mkdir(parents=True, exist_ok=True)
    target, data = path / f"events.out.tfevents.{run.id}", _content(run)
    remove_temporaries(path, target.name)
    # A running TensorBoard does not reread a file that did not change.
    if not target.is_file() or target.read_bytes() != data:
        write_bytes(target, data)
    return target


def _content(run: StoredRun) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    stream, data = io.BytesIO(), phases(run)
    writer = RecordWriter(stream)
    day = datetime.date.fromisoformat(run.record["date"])
    start = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()
    end = start + float(run.record["seconds"]["total"])

    def event(time: float, step: int = 0, **content: Any) -> None:
        writer.write(Event(wall_time=time, step=step, **content).SerializeToString(deterministic=True))

    event(start, file_version="brain.Event:2")
    content_of_run = {"id": run.id, **{k: run.record[k] for k in ("label", "spec", "fingerprint")}}
    event(start, summary=Summary(value=[_text(content_of_run), _session(settings(run), start, None)]))
    for i, step in enumerate(data.steps.tolist()):
        values = [Summary.Value(tag=name, simple_value=value) for name, value in data.panels(i).items()]
        values += [_histogram(data.name(HISTOGRAM, i), data.lags[i])] if data.lags else []
        # phases that fill the buffer take no steps, and would lie on top of one another
        x = int(data.phase[i]) if data.phase[i] < data.fill_phases else step
        event(start + data.seconds[i], x, summary=Summary(value=values))
    last = int(data.steps[-1]) if len(data.steps) else 0
    values = [Summary.Value(tag=name, simple_value=value) for name, value in final_scores(run).items()]
    event(end, last, summary=Summary(value=[*values, _session({}, start, end)]))
    return stream.getvalue()


def _text(content: Any) -> Any:
    """JSON for TensorBoard's text page; indented, so that Markdown shows it verbatim."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    lines = json.dumps(content, indent=1, sort_keys=True).splitlines()
    text = "\n".join(f"    {line}" for line in lines)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=shape)
    return Summary.Value(tag="run/text_summary", metadata=create_summary_metadata("run", ""), tensor=tensor)


def _histogram(tag: str, counts: NDArray[np.int64]) -> Any:
    """Counts of the lags 0, 1, ..., a bucket around each, under a tag."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

    lags = np.arange(len(counts))
    present = lags[counts > 0]
    proto = HistogramProto(
        min=float(present.min(initial=0)),
        max=float(present.max(initial=0)),
        num=float(counts.sum()),
        sum=float(counts @ lags),
        sum_squares=float(counts @ lags**2),
        bucket_limit=(lags + 0.5).tolist(),
        bucket=counts.astype(float).tolist(),
    )
    return Summary.Value(tag=tag, histo=proto)


def _session(hparams: dict[str, Any], start: float, end: float | None) -> Any:
    """Start of a session on the HParams page, with the settings; or its end, where `end` is given."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    if end is None:
        info = plugin_data_pb2.SessionStartInfo(start_time_secs=start)
        for name, value in hparams.items():
            if isinstance(value, bool):
                info.hparams[name].bool_value = value
            elif isinstance(value, str):
                info.hparams[name].string_value = value
            else:
                info.hparams[name].number_value = value
        tag, data = metadata.SESSION_START_INFO_TAG, {"session_start_info": info}
    else:
        end_info = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.STATUS_SUCCESS, end_time_secs=end)
        tag, data = metadata.SESSION_END_INFO_TAG, {"session_end_info": end_info}
    content = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **data)
    # tensorboard's own helper writes the same, but its order of settings differs from process to process.
    plugin = SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString(deterministic=True)
    )
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=metadata.NULL_TENSOR)
