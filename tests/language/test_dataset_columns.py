"""Rows of other data sets as GSM8K's: question, worked solution, gold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from staleharness.errors import UserError
from staleharness.language.problem import Problem
from staleharness.language.problem_files import load
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import resolve_paths, with_usual_columns

APPLES = "Tom has 2 apples and buys 3. How many?"
DATA = ROOT / "tests" / "data" / "language"


def read(folder: Path, row: dict[str, Any] | str) -> Problem:
    (folder / "train.jsonl").write_text(row if isinstance(row, str) else json.dumps(row))
    (problem,) = load("train", folder)
    return problem


@pytest.mark.parametrize(
    "kind, solution",
    [("math", "Adding gives $\\boxed{5}$.\n#### 5"), ("dapo", "#### 5"), ("chat", "#### 5")],
    ids=["MATH", "DAPO", "chat"],
)
def test_each_case_is_read(tmp_path: Path, kind: str, solution: str) -> None:
    found = read(tmp_path, (DATA / f"{kind}.jsonl").read_text())
    assert (found.question, found.solution, found.answer) == (APPLES, solution, "5")


@pytest.mark.parametrize(
    "row, solution, answer",
    [
        ({"prompt": APPLES, "completion": "2 + 3 = 5\n#### 5"}, "2 + 3 = 5\n#### 5", "5"),
        (
            {
                "prompt": [{"role": "user", "content": APPLES}],
                "completion": [{"role": "assistant", "content": "\\boxed{5}"}],
            },
            "\\boxed{5}\n#### 5",
            "5",
        ),
        ({"prompt": [{"role": "user", "content": APPLES}], "solution": "5"}, "#### 5", "5"),
        ({"prompt": APPLES, "answer": 5}, "#### 5", "5"),
        ({"question": APPLES, "answer": " 1,005 "}, "#### 1,005", "1005"),
        ({"question": APPLES, "answer": 5}, "#### 5", "5"),
        ({"question": APPLES, "solution": "2 + 3 = \\boxed{5}", "answer": "5"}, "2 + 3 = \\boxed{5}\n#### 5", "5"),
        ({"question": APPLES, "solution": "5", "answer": 5}, "#### 5", "5"),
        ({"question": APPLES, "solution": "5 apples", "answer": "2 + 3\n#### 5"}, "2 + 3\n#### 5", "5"),
        ({"question": APPLES, "answer": "#### $-1,234"}, "#### $-1,234", "-1234"),
        ({"problem": APPLES, "solution": "It is five.", "answer": "1,005"}, "It is five.\n#### 1,005", "1005"),
        ({"problem": APPLES, "answer": "2 + 3\n#### 5"}, "#### 5", "5"),
        ({"problem": APPLES, "solution": "#### Sum\nIt is five.", "answer": 5}, "#### Sum\nIt is five.\n#### 5", "5"),
        ({"problem": APPLES, "solution": "2 + 3\n#### 5", "answer": " 5"}, "2 + 3\n#### 5", "5"),
        ({"problem": APPLES, "answer": ["5"], "solution": "\\boxed{4}"}, "\\boxed{4}\n#### 5", "5"),
        ({"question": APPLES, "answer": ["5"]}, "#### 5", "5"),
    ],
    ids=[
        "TRL text",
        "TRL messages",
        "TRL solution",
        "number",
        "bare",
        "bare number",
        "bare beside a solution",
        "bare twice",
        "GSM8K beside another solution",
        "dollars below zero",
        "open-r1",
        "marked answer",
        "heading",
        "both",
        "list of one",
        "bare list of one",
    ],
)
def test_rows_of_other_trainers_are_read(tmp_path: Path, row: dict[str, Any], solution: str, answer: str) -> None:
    found = read(tmp_path, row)
    assert (found.question, found.solution, found.answer) == (APPLES, solution, answer)


@pytest.mark.parametrize(
    "row, words",
    [
        ((DATA / "euro.jsonl").read_text(), "the commas of '1.234,50' do not group thousands"),
        ({"question": APPLES, "answer": "#### 1,5"}, "the commas of '1,5' do not group thousands"),
        ({"problem": APPLES, "solution": "It is five."}, "no answer was found: no number, '####' or box; SET="),
        ({"problem": APPLES, "solution": "\\boxed{x + 1}"}, "the answer ends in '{x + 1}', which is not a number"),
        ({"text": APPLES, "label": "5"}, "has no 'question'; SET=question=text,answer=label names the columns"),
        (
            {"problem": APPLES, "answer": ["17", "18"], "solution": "\\boxed{17}"},
            "'answer' has 2 answers; it must have one",
        ),
        ({"question": APPLES, "answer": None}, "'answer' is not text, or is empty"),
        ({"question": APPLES, "answer": []}, "'answer' is an empty list; it must have one entry"),
        ({"text": APPLES}, "SET=question=text,answer=NAME names the columns (there are: text)"),
        (
            {"messages": [{"role": r, "content": "a"} for r in ("system", "user", "assistant")]},
            "'messages' has messages of system, user, assistant, not one each of user and assistant",
        ),
        ({"prompt": [{"role": "user", "content": APPLES}] * 2, "answer": "5"}, "messages of user, user"),
        ({"prompt": [], "answer": "5"}, "messages of none"),
        ({"messages": "hello"}, "'messages' has messages of none"),
        ({"prompt": 3, "answer": "5"}, "'prompt' is not text"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, row: dict[str, Any] | str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, row)
    assert words in str(caught.value) and "line 1" in str(caught.value) and "\n" not in str(caught.value)


def spec_of(data: Path, **settings: str) -> LanguageSpec:
    return LanguageSpec(env="gsm8k", algorithm="ppo_clip", data=str(data), **settings)


def write_both(folder: Path, row: dict[str, Any]) -> None:
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    "row, question, answer, solution",
    [
        ({"text": APPLES, "label": 5}, "text", "label", "#### 5"),
        ({"text": APPLES, "label": "5"}, "text", "label", "#### 5"),
        ({"q": [{"role": "user", "content": APPLES}], "a": "2 + 3\n#### 5"}, "q", "a", "2 + 3\n#### 5"),
        ({"in": {"q": APPLES}, "out": {"a.b": "\\boxed{5}"}}, "in.q", "out.a.b", None),
        ({"in": {"q": APPLES}, "out.a": "\\boxed{5}"}, "in.q", "out.a", "\\boxed{5}\n#### 5"),
        ({"question": "wrong", "text": APPLES, "answer": "#### 7", "n": 5.0}, "text", "n", "#### 5.0"),
    ],
    ids=["number", "text", "message", "absent entry", "entry", "other columns"],
)
def test_columns_that_are_named_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, Any],
    question: str,
    answer: str,
    solution: str | None,
) -> None:
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path / "cache"))
    write_both(tmp_path, row)
    spec = spec_of(tmp_path, question=question, answer=answer)
    if solution is None:
        with pytest.raises(UserError, match=r"train.jsonl, line 1: has no 'out.a.b'; SET=question=in,answer=out names"):
            with_usual_columns(spec)
        return
    local_spec = with_usual_columns(spec)
    (problem,) = load("test", Path(local_spec.data))
    assert (problem.question, problem.solution) == (APPLES, solution)
    assert with_usual_columns(local_spec) == local_spec == resolve_paths(spec, tmp_path)


def test_other_rows_under_one_name_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALEHARNESS_CACHE", str(tmp_path / "cache"))
    found = []
    for label in (5, 6):
        write_both(tmp_path, {"text": APPLES, "label": label})
        local_spec = with_usual_columns(spec_of(tmp_path, question="text", answer="label"))
        found.append(load("train", Path(local_spec.data))[0].answer)
    assert found == ["5", "6"]


@pytest.mark.parametrize("settings", [{"question": "a"}, {"answer": "a"}, {"question": "a", "answer": "b", "data": ""}])
def test_columns_are_named_together_and_for_data(settings: dict[str, str]) -> None:
    with pytest.raises(UserError, match="question= and answer= together name the columns of DATA=<folder>"):
        LanguageSpec(env="gsm8k", algorithm="ppo_clip", **{"data": "d", **settings})
