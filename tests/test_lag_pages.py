"""The page of the lag models is what their files say."""

from __future__ import annotations

import importlib.util

from places import ROOT

from staleharness.lag import LAGS


def test_the_committed_page_is_what_the_files_say_now() -> None:
    spec = importlib.util.spec_from_file_location("lag_models", ROOT / "docs" / "lag_models.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run `make docs`"
    for name in LAGS:
        assert f"### `{LAGS[name].usage()}`" in made.page()
