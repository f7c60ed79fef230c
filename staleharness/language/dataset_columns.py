"""Rows of data sets as question and answer: GSM8K, MATH, DAPO and verl, chats, TRL, open-r1.

| shape | question | worked solution | gold |
|---|---|---|---|
| GSM8K | `question` | `answer`; `solution` beside a bare one | behind `####`, or the whole of a bare answer |
| MATH, open-r1 | `problem` | `solution` | `answer`, or the last box of the solution |
| DAPO, verl | `prompt`: one user message | none | `reward_model.ground_truth` |
| TRL | `prompt`: text or one user message | `completion` | `solution`, `answer`, `ground_truth`, or its own |
| chat | `messages`: one of the user, one of the assistant | the assistant's | behind `####`, or its last box |

A system message before the user's is refused: the prompt format writes the instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UserError, shorten
from .answer_grading import last_box

QUESTIONS = ("question", "problem", "prompt", "messages")  # columns that may hold the question, by rank
SOLUTIONS = ("solution", "completion", "response")
GOLDS = ("answer", "ground_truth", "final_answer", "expected_answer", "solution")


def question_and_answer(row: Mapping[str, Any], where: str, columns: tuple[str, str] | None = None) -> tuple[str, str]:
    """Return the question, and a solution that ends in `#### <gold>`, from the `columns` of the two where they are
    named. Raises `UserError`, with the place `where`."""
    if columns:
        question, solution = (_entry(row, name, where) for name in columns)
        return question, _with_gold(solution, solution if _is_gold(solution) else None, row, where)
    column = next((name for name in QUESTIONS if name in row), None)
    if column in (None, "question"):  # GSM8K's own columns; beside a bare answer another column may have the solution
        question, answer = text_of(row, "question", where), _entry(row, "answer", where)
        return question, _with_gold(_solution(row, where), answer, row, where) if _is_gold(answer) else answer
    if column == "messages":
        question, solution = _turns(row[column], where, column, assistant=True)
    else:
        value = row[column]
        question = _turns(value, where, column)[0] if isinstance(value, list) else text_of(row, column, where)
        solution = _solution(row, where)
    return question, _with_gold(solution, _gold(row, where), row, where)


def _with_gold(solution: str, gold: str | None, row: Mapping[str, Any], where: str) -> str:
    """Return the solution with `#### <gold>` at its end: the gold given, else what the solution marks so, or its last
    box. Raises `UserError` where there is none."""
    _, mark, end_of_solution = solution.rpartition("####")
    if mark and (gold or end_of_solution).strip() == end_of_solution.strip():
        return solution
    gold = gold or last_box(solution)
    if gold is None:
        raise UserError(f"{where}: no answer was found: no number, '####' or box; {_mapping(row)}")
    end = f"#### {gold.strip()}"
    if not solution.strip() or solution.strip() == gold.strip():
        return end
    return f"{solution.rstrip()}\n{end}"


def _mapping(row: Mapping[str, Any]) -> str:
    """Explanation of how to name the columns of a row."""
    names = [shorten(str(name)) for name in list(row)[:8]]
    question, answer = [*names, "NAME", "NAME"][:2]
    return f"SET=question={question},answer={answer} names the columns (there are: {', '.join(names) or 'none'})"


def _entry(row: Mapping[str, Any], name: str, where: str) -> str:
    """Return the text of a column, or of an entry in it (`a.b`): text, a number, or one message of a user."""
    value: Any = row
    for key in [name] if name in row else name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None and name not in row:
        raise UserError(f"{where}: has no {shorten(name)!r}; {_mapping(row)}")
    if value == []:
        raise UserError(f"{where}: {shorten(name)!r} is an empty list; it must have one entry")
    value = _only_entry(value, where, name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return _turns(value, where, name)[0] if isinstance(value, list) else _text(value, where, name)


def text_of(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of a column. Raises `UserError` where there is none."""
    if key not in row:
        raise UserError(f"{where}: has no {key!r}; {_mapping(row)}")
    return _text(row[key], where, key)


def _text(value: Any, where: str, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: {key!r} is not text, or is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {key!r} is not valid Unicode: a lone surrogate") from error
    return value


def _solution(row: Mapping[str, Any], where: str) -> str:
    """Return the worked solution; empty where no column has one, or one that is only the gold."""
    for key in SOLUTIONS:
        value = row.get(key)
        if isinstance(value, list):
            return "\n".join(_text(_content(turn), where, key) for turn in value)
        if isinstance(value, str) and value.strip() and not (key == "solution" and _is_gold(value)):
            return _text(value, where, key)
    return ""


def _is_gold(text: str) -> bool:
    """Return whether a `solution` is the bare answer, as in TRL's data, not text that leads to one."""
    return "\\boxed" not in text and "####" not in text and len(text.split()) == 1


def _gold(row: Mapping[str, Any], where: str) -> str | None:
    reward = row.get("reward_model")
    values = [("reward_model", reward.get("ground_truth"))] if isinstance(reward, Mapping) else []
    values += [(key, row.get(key)) for key in GOLDS]
    for key, value in values:
        value = _only_entry(value, where, key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        if isinstance(value, str) and value.strip() and (key != "solution" or _is_gold(value)):
            return _text(value, where, key).rpartition("####")[2]
    return None


def _only_entry(value: Any, where: str, key: str) -> Any:
    """Return the only entry of a list of answers, or a value that is not such a list unchanged. Raises `UserError` for
    several answers."""
    if not isinstance(value, list) or not value or any(isinstance(entry, Mapping) for entry in value):
        return value
    if len(value) > 1:
        raise UserError(f"{where}: {key!r} has {len(value)} answers; it must have one")
    return value[0]


def _turns(turns: Any, where: str, key: str, assistant: bool = False) -> tuple[str, str]:
    """Return the texts of the user and the assistant of a chat of one turn each."""
    roles = [turn.get("role") for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []
    expected_roles = ["user", "assistant"] if assistant else ["user"]
    if roles != expected_roles:
        names = ", ".join(map(str, roles[:4])) or "none"
        raise UserError(f"{where}: {key!r} has messages of {names}, not one each of {' and '.join(expected_roles)}")
    texts = [_text(_content(turn), where, key) for turn in turns]
    return texts[0], texts[-1] if assistant else ""


def _content(turn: Any) -> Any:
    return turn.get("content") if isinstance(turn, Mapping) else None
