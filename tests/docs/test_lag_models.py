"""Page of the lag models from their files."""

from __future__ import annotations

import importlib.util

from places import ROOT

from staleharness.lag import LAGS


def test_the_committed_page_is_that_of_the_files_now() -> None:
    spec = importlib.util.spec_from_file_location("lag_models", ROOT / "docs" / "lag_models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run `make docs`"
    for name in LAGS:
        assert f"### `{LAGS[name].usage()}`" in module.page()
