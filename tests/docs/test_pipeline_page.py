"""docs/pipeline.md: the systems for which pace=length works."""

from __future__ import annotations

import re

from places import ROOT

from staleharness.base.plugins import is_builtin
from staleharness.errors import UserError
from staleharness.lag import LAGS, read_lag
from staleharness.pipeline_lag_model import PipelineLag
from staleharness.rollout_schedule import Demand

PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")


def is_paced(text: str) -> bool:
    """Return whether a lag model takes pace=length: its weights never change inside a row."""
    name, _, options = text.rstrip("]").partition("[")
    model = read_lag(f"{name}[{','.join(filter(None, [options, 'pace=length']))}]").at(64)
    assert isinstance(model, PipelineLag)
    try:
        model.pipeline(Demand(phases=4, groups=2, rows=2, length=8, seed=0))
    except UserError as error:
        assert "weights may change" in str(error)
        return False
    return True


def test_systems_that_take_pace_length_are_on_the_page() -> None:
    sentence = PAGE.partition("So it works for ")[2].partition("other systems")[0]
    listed = re.findall(r"`([^`]+)`", sentence)
    with_options = [text for text in listed if "[" in text]
    assert with_options and all(map(is_paced, with_options))
    systems = [name for name in LAGS if issubclass(LAGS[name], PipelineLag) and is_builtin(LAGS[name], "lags")]
    assert [name for name in systems if is_paced(name)] == [text for text in listed if "[" not in text]
