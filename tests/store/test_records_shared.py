"""Records of runs as they are held in memory."""

from __future__ import annotations

import json

from staleharness.store.record_schema import parse_record


def test_records_are_what_they_say_and_share_their_words_but_nothing_that_can_change() -> None:
    said = {"label": "ppo_clip, as typed", "task": {"kind": "control", "axes": {}}, "scores": [1.5, {"mean": None}]}
    a, b = parse_record(json.dumps(said)), parse_record(json.dumps(said).encode())
    assert a == b == said
    assert a["label"] is b["label"] and a["task"]["kind"] is b["task"]["kind"]
    assert all(x is y for x, y in zip(a["task"], b["task"], strict=True))
    assert a["task"] is not b["task"] and a["scores"] is not b["scores"]
