"""What a run says of itself, `run.json`, before anybody believes it: whose it is, and whether what readers count on is
there."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from ..base.files import parse_json

FORMAT = 2
RECORD = {  # what every reader of a record counts on; `before` is empty where it is not there
    "label": str, "task": dict, "before": dict, "spec": dict, "fingerprint": dict, "scores": dict, "summary": dict,
    "seconds": dict, "lag_histogram": dict, "phases": int, "steps": int, "metrics_sha256": str, "date": str,
}  # fmt: skip
SPEC = {"env": str, "algorithm": str, "capacity": int, "seed": int}


def parsed(text: str | bytes) -> Any:
    """A record as JSON, its words shared with those of all other records: thousands are held at once, and most of each
    is what the others say, too."""
    return parse_json(text, object_pairs_hook=_sharing)


def _sharing(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    intern = sys.intern
    return {intern(key): intern(value) if type(value) is str else value for key, value in pairs}


def is_id(name: str) -> bool:
    """Whether this is how runs are called. Nothing else ever becomes part of a path."""
    return re.fullmatch("[0-9a-f]{12}", name) is not None


def wrong_with(record: Any, run_id: str) -> str | None:
    """What is wrong with what calls itself the record of this run, or None. One of another format is asked for its
    name alone."""
    if not isinstance(record, dict):
        return "run.json is not a record"
    if record.get("id") != run_id:
        return f"its record is that of run {str(record.get('id'))[:60]!r}"
    if record.get("format") != FORMAT:
        return None
    wrong = (
        _untyped({"before": {}, **record}, RECORD)
        or _untyped(record["spec"], SPEC)
        or _untyped(record["seconds"], {"total": float})
    )
    for scores in () if wrong else record["scores"].values():
        wrong = wrong or _untyped(scores, {"mean": float, "returns": list})
    return f"its record has no proper {wrong}" if wrong else None


def _untyped(content: Any, types: Mapping[str, type]) -> str | None:
    """The first entry that is absent or of another type. A whole number is a number."""
    for name, kind in types.items():
        value = content.get(name) if isinstance(content, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            return name
    return None
