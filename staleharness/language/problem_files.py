"""GSM8K (Cobbe et al. 2021, MIT licence): rows from a folder or from the hub's cache, with every row validated; and
digests of the files that a run reads."""

from __future__ import annotations

import codecs
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..base.files import digest, parse_json, stamp
from ..base.parsing import user_path
from ..errors import UserError, one_line, shorten
from .answer_grading import has_odd_commas, number, plain
from .dataset_columns import question_and_answer
from .problem import Problem, Split

HUB = "openai/gsm8k"
FORMAT = "train.jsonl and test.jsonl, one {question, answer} per line"


def load(split: Split, folder: Path | None = None) -> list[Problem]:
    """Return all problems of a split, in file order: from `<folder>/<split>.jsonl`, or without a folder from the hub's
    `openai/gsm8k` (its local cache first, then the network).

    Other data with numbers as answers are accepted, in the same format or one of `dataset_columns`. Raises `UserError`,
    naming file and line, for a file that cannot be read, a row that is not a JSON object with a question and an answer,
    an answer without `####` or without a number after it, and a file without rows.
    """
    if split not in ("train", "test"):
        raise UserError(f"GSM8K has the splits train and test, not {shorten(split)!r}")
    rows = _from_hub(split) if folder is None else _from_file(Path(folder) / f"{split}.jsonl")
    return [_problem(row, where) for where, row in rows]


def data_digest(text: str) -> str:
    """Return a digest, 16 hex digits, of a file, or of those in a folder and its sub-folders; empty where there is
    none."""
    path = user_path(text)
    return digest(path)[:16] if text and path.is_file() else folder_digest(text, nested=True)


def folder_digest(text: str, nested: bool = False) -> str:
    """Return a digest, 16 hex digits, of the names and contents of a folder's files, and with `nested` those of its
    sub-folders; empty where there is none."""
    folder = user_path(text)
    if not text or not folder.is_dir():
        return ""
    paths = {path.relative_to(folder): path for path in (folder.rglob("*") if nested else folder.iterdir())}
    names = sorted(name for name, path in paths.items() if path.is_file() and not re.match(r"\.|.*/\.", f"{name}"))
    return _digest_of(folder, tuple(names), tuple(stamp(folder / name) for name in names))


@functools.lru_cache(maxsize=64)
def _digest_of(folder: Path, names: tuple[Path, ...], stamps: tuple[tuple[str, int, int, int], ...]) -> str:
    """Compute the digest once per content; `stamps` key the cache."""
    content = [[name.as_posix(), digest(folder / name)] for name in names]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _from_file(path: Path) -> list[tuple[str, Any]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"{path} cannot be read: {reason}; DATA is a folder with {FORMAT}") from error
    rows = []
    # Split at line feeds only: str.splitlines would also break rows at U+2028 inside a question.
    for line_number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), start=1):
        if line.strip():
            where = f"{path}, line {line_number}"
            rows.append((where, _json(line, where)))
    if not rows:
        raise UserError(f"{path} has no rows; DATA is a folder with {FORMAT}")
    return rows


def _json(line: bytes, where: str) -> Any:
    try:
        return parse_json(line.decode(), object_pairs_hook=lambda pairs: _unique(pairs, where))
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        # Not UTF-8, a number with too many digits, nested too deeply.
        raise UserError(f"{where}: not JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    """Return a JSON object. Raises `UserError` for a key that is given twice, of which `json` would keep the last."""
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise UserError(f"{where}: {shorten(next(key for key in keys if keys.count(key) > 1))!r} is given twice")
    return row


def _from_hub(split: Split) -> Iterable[tuple[str, Any]]:
    from .model.model_preflight import hub_file  # loads numpy

    remedy = f"give DATA=<folder with {FORMAT}>"
    name = f"main/{split}-00000-of-00001.parquet"
    try:
        path = hub_file(HUB, name, "dataset")
    except ImportError as error:
        raise UserError(f"GSM8K: {remedy}, or install the extra llm, which fetches {HUB} from the hub") from error
    except Exception as error:  # from the hub's library, and from the one with which it reaches the network
        reason = shorten(one_line(error) or type(error).__name__, 120)
        raise UserError(
            f"GSM8K: {HUB} is neither in the hub's cache nor can it be fetched ({reason}); {remedy}"
        ) from error

    from pyarrow import ArrowException
    from pyarrow.parquet import read_table

    try:
        table = read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise UserError(f"GSM8K: {path} is not Parquet; delete it to fetch it again, or {remedy}") from error
    return [(f"{HUB} {name}, row {i}", row) for i, row in enumerate(table, start=1)]


def write_rows(data: Path, columns: tuple[str, str], folder: Path) -> None:
    """Write the splits of `data`, whose rows have question and answer in these columns, with GSM8K's own columns into a
    new folder. Raises `UserError`, naming file and line, as `load` does."""
    folder.mkdir()
    for split in ("train", "test"):
        problems = [_problem(row, where, columns) for where, row in _from_file(data / f"{split}.jsonl")]
        lines = [json.dumps({"question": p.question, "answer": p.solution}) + "\n" for p in problems]
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


def _problem(row: Any, where: str, columns: tuple[str, str] | None = None) -> Problem:
    if not isinstance(row, dict):
        raise UserError(f"{where}: a row is one JSON object with question and answer, not {type(row).__name__}")
    question, solution = question_and_answer(row, where, columns)
    _, mark, gold = solution.rpartition("####")
    if not mark:
        raise UserError(f"{where}: the answer has no '####'; it ends in '#### <number>'")
    if has_odd_commas(gold):
        raise UserError(
            f"{where}: the commas of {shorten(gold.strip())!r} do not group thousands; write 1234.5 or 1,234.5"
        )
    if number(gold.strip()) is None:
        raise UserError(f"{where}: the answer ends in {shorten(gold.strip())!r}, which is not a number")
    return Problem(question, solution, plain(gold))
