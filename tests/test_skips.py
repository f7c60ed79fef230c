"""Tests that skip: the reason says how to get what is missing, and a record allows to run them then."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from needs import HINT, hint, needs_tool, require_extra, require_task, skip_without_extra
from places import ROOT
from skip_record import SkipRecord

from staleharness.study import sweep_request


def test_a_missing_extra_skips_with_its_install_command() -> None:
    with pytest.raises(
        pytest.skip.Exception, match="needs the extra nothing_like_it: make setup EXTRAS=nothing_like_it"
    ):
        require_extra("nothing_like_it")
    mark = needs_tool("nothing-like-it").mark
    assert mark.args == (True,) and mark.kwargs["reason"] == "needs nothing-like-it, which is not installed here"
    assert needs_tool("sh").mark.args == (False,)


def test_a_message_skips_only_where_it_names_a_missing_extra() -> None:
    skip_without_extra("ENV=Hoper is unknown; make setup")
    skip_without_extra("needs the extra pytest: make setup EXTRAS=pytest")  # is there, so the failure is another
    with pytest.raises(pytest.skip.Exception, match="make setup EXTRAS=nothing_like_it"):
        skip_without_extra("ENV=x needs the extra nothing_like_it: make setup EXTRAS=nothing_like_it, or pip install")


def test_a_question_on_a_language_task_needs_the_extra_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("needs.has_extra", lambda extra: extra != "llm")
    require_task(sweep_request(env="Hopper", algo="spo"))
    with pytest.raises(pytest.skip.Exception, match="needs the extra llm"):
        require_task(sweep_request(env="word-problems", algo="spo"))


def test_only_what_was_skipped_for_want_of_an_extra_is_recorded(tmp_path: Path) -> None:
    record = SkipRecord(tmp_path / "ids")
    for name, skipped, why in (
        ("b.py::test[x y]", True, hint("ray")),
        ("a.py", True, hint("llm")),
        ("c.py::test", True, "needs fish, which is not installed here"),
        ("d.py::test", False, hint("ray")),  # the text of a failure
    ):
        record._note(SimpleNamespace(nodeid=name, skipped=skipped, longrepr=("f.py", 1, f"Skipped: {why}")))  # type: ignore[arg-type]
    record.pytest_sessionfinish()
    assert (tmp_path / "ids").read_text() == "a.py\nb.py::test[x y]\n"


def test_no_test_skips_for_want_of_a_module_in_other_words() -> None:
    """Or else the second pass of `.ci/run` would not run it."""
    calls = [
        (path.name, call)
        for path in (ROOT / "tests").rglob("*.py")
        for call in re.findall(r"importorskip\([^\n]*", path.read_text(encoding="utf-8"))
        if path != Path(__file__)
    ]
    assert calls and [c for c in calls if "reason=hint(" not in c[1]] == []
    assert HINT in hint("ray")


def test_a_file_with_a_long_test_holds_its_mark() -> None:
    """`make test-long` reads only files with these words (tests/conftest.py)."""
    marked = "mark." + "long"
    shared = [*(ROOT / "tests" / "helpers").glob("*.py"), *(ROOT / "tests").rglob("*/conftest.py")]
    assert len(shared) > 40 and not [path for path in shared if marked in path.read_text(encoding="utf-8")]
