"""The loader: the real files, the hub's file, and one line for each way in which data can be broken."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gsm8k_rows import real_rows
from needs import hint
from places import GSM8K

from staleharness.errors import UserError
from staleharness.language.answer_grading import number
from staleharness.language.problem import Problem, strip_calculator
from staleharness.language.problem_files import HUB, Split, data_digest, folder_digest, load

# sha256 of grade_school_math/data/<split>.jsonl in openai/grade-school-math
UPSTREAM: dict[Split, str] = {
    "train": "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
    "test": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
}
HENS = {"question": "How many hens?", "answer": "2+1=<<2+1=3>>3 hens.\n#### 3"}
COWS = {"question": "How many cows?\u2028All?", "answer": "Many.\n#### -1,234"}


def write(folder: Path, *lines: str | bytes | dict[str, Any], end: bytes = b"\n") -> Path:
    """`folder/train.jsonl` with these lines, each text, bytes or an object."""
    encoded = [
        line if isinstance(line, bytes) else (json.dumps(line) if isinstance(line, dict) else line).encode()
        for line in lines
    ]
    (folder / "train.jsonl").write_bytes(b"".join(line + end for line in encoded))
    return folder


# Data that are fine ---------------------------------------------------------------------------------------------------


def test_the_real_files_are_read_without_loss() -> None:
    rows = real_rows()
    problems = [*load("train", GSM8K), *load("test", GSM8K)]
    assert [(p.question, p.solution, p.answer) for p in problems] == [
        (question, solution, gold.replace(",", "")) for question, solution, gold in rows
    ]
    for split, digest in UPSTREAM.items():
        written = hashlib.sha256()
        for problem in load(split, GSM8K):
            row = {"question": problem.question, "answer": problem.solution}
            written.update(json.dumps(row).encode() + b"\n")
        assert written.hexdigest() == digest
    assert len(problems) == 7473 + 1319 == len({problem.question for problem in problems})


def test_a_digest_is_of_a_file_or_of_all_files_in_a_folder(tmp_path: Path) -> None:
    """Names and contents, also in sub-folders; not hidden files."""
    file, deep, hidden = tmp_path / "data/a.jsonl", tmp_path / "data/v1/b.jsonl", tmp_path / "data/.git/c"
    for path in (file, deep, hidden):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    digests = [data_digest(str(tmp_path / "data")), data_digest(str(file))]
    hidden.write_text("2")
    assert [data_digest(str(tmp_path / "data")), data_digest(str(file))] == digests
    deep.write_text("22")
    file.write_text("22")
    assert len({*digests, data_digest(str(file)), data_digest(str(tmp_path / "data"))}) == 4
    deep.rename(deep.with_name("d.jsonl"))
    assert len({data_digest(str(tmp_path / "data")), digests[0]}) == 2
    assert data_digest("") == data_digest(str(tmp_path / "nowhere")) == ""
    flat = folder_digest(str(tmp_path / "data"))
    assert folder_digest(str(tmp_path / "data"), nested=True) != flat
    (tmp_path / "data/v1/d.jsonl").unlink()
    assert folder_digest(str(tmp_path / "data"), nested=True) == flat, "as before there were sub-folders"


def test_other_data_are_welcome(tmp_path: Path) -> None:
    problems = load("train", write(tmp_path, HENS, COWS, HENS))
    assert problems[0] == Problem("How many hens?", HENS["answer"], "3")
    assert problems[1].answer == "-1234"
    assert len(problems) == 3


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("tail", [b"", b"\n \n\r\n"])
def test_byte_order_mark_line_ends_and_blank_lines_do_not_matter(
    tmp_path: Path, start: bytes, end: bytes, tail: bytes
) -> None:
    plain = load("train", write(tmp_path, HENS, COWS))
    unescaped = json.dumps({"extra": 1, **COWS}, ensure_ascii=False)  # with a bare U+2028, and keys we do not know
    write(tmp_path, start + json.dumps(HENS).encode(), unescaped, end=end)
    file = tmp_path / "train.jsonl"
    file.write_bytes(file.read_bytes() + tail)
    assert load("train", tmp_path) == plain
    file.write_bytes(file.read_bytes().rstrip())
    assert load("train", tmp_path) == plain


def test_calculator_annotations_go_and_nothing_else() -> None:
    assert strip_calculator("2+1=<<2+1=3>>3 < 4 >> 2 <<") == "2+1=3 < 4 >> 2 <<"
    assert strip_calculator("<<" * 500_000) == "<<" * 500_000  # in one pass
    for _, solution, _ in real_rows():
        stripped = strip_calculator(solution)
        assert "<<" not in stripped and ">>" not in stripped
        pieces = [piece.split(">>", 1)[-1] for piece in solution.split("<<")]  # literally: cut, and cut again
        assert stripped == "".join(pieces)


# Data that are broken -------------------------------------------------------------------------------------------------

BROKEN: dict[str, tuple[str | bytes | dict[str, Any], list[str]]] = {
    "broken JSON": ('{"question": "a",', ["not JSON", "column 18"]),
    "not UTF-8": (b'{"question": "\xff"}', ["not JSON", "utf-8", "0xff"]),
    "UTF-16": ('{"question": "a"}'.encode("utf-16"), ["not JSON", "utf-8"]),
    "nested too deeply": ("[" * 200_000, ["not JSON"]),
    "a number with too many digits": ('{"question": ' + "9" * 5000 + "}", ["not JSON", "digits"]),
    "a list": ("[1]", ["one JSON object", "list"]),
    "a bare text": ('"How many?"', ["one JSON object", "str"]),
    "null": ("null", ["one JSON object", "NoneType"]),
    "a key given twice": ('{"question": "a", "answer": "#### 3", "question": "b"}', ["'question' is given twice"]),
    "a nested key given twice": ('{"question": "a", "x": {"y": 1, "y": 1}}', ["'y' is given twice"]),
    "no question": ({"answer": "#### 3"}, ["has no 'question'"]),
    "no answer": ({"question": "How many?"}, ["has no 'answer'"]),
    "an empty question": ({**HENS, "question": " \n"}, ["'question' is not text, or is empty"]),
    "an empty answer": ({**HENS, "answer": ""}, ["'answer' is not text, or is empty"]),
    "a question that is a number": ({**HENS, "question": 3}, ["'question' is not text"]),
    "an answer that is true": ({**HENS, "answer": True}, ["'answer' is not text"]),
    "an answer that is null": ({**HENS, "answer": None}, ["'answer' is not text, or is empty"]),
    "a lone surrogate": ({**HENS, "question": "\ud800"}, ["'question' is not valid Unicode"]),
    "an answer without ####": ({**HENS, "answer": "3 hens. ### 3"}, ["no '####'", "#### <number>"]),
    "no gold": ({**HENS, "answer": "3 hens. #### "}, ["ends in ''", "not a number"]),
    "a gold in words": ({**HENS, "answer": "#### three"}, ["ends in 'three'", "not a number"]),
    "a gold with a unit": ({**HENS, "answer": "#### 3 hens"}, ["ends in '3 hens'", "not a number"]),
    "a gold that is NaN": ({**HENS, "answer": "#### NaN"}, ["ends in 'NaN'"]),
    "a gold in other digits": ({**HENS, "answer": "#### ３"}, ["not a number"]),
    "a gold of a megabyte": ({**HENS, "answer": "#### " + "9" * 1_000_000}, ["…", "not a number"]),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_row_is_one_line_with_its_file_and_line_number(tmp_path: Path, kind: str) -> None:
    line, expected = BROKEN[kind]
    folder = write(tmp_path, HENS, "", line, HENS)  # the blank line counts
    with pytest.raises(UserError) as raised:
        load("train", folder)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path / 'train.jsonl'}, line 3: ")
    assert all(part in message for part in expected), message
    assert "\n" not in message
    assert len(message.removeprefix(str(tmp_path))) < 200


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"train\.jsonl has no rows; DATA is a folder with train\.jsonl"):
        load("train", tmp_path)


def test_a_missing_file_says_what_the_folder_must_hold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"test\.jsonl cannot be read: No such file.*DATA is a folder with"):
        load("test", write(tmp_path, HENS))
    (tmp_path / "test.jsonl").mkdir()
    with pytest.raises(UserError, match=r"test\.jsonl cannot be read: Is a directory"):
        load("test", tmp_path)


def test_an_unknown_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train and test, not 'validation'"):
        load("validation", tmp_path)  # type: ignore[arg-type]


# Without a folder: the hub --------------------------------------------------------------------------------------------


class Hub(ModuleType):
    """Stands in for huggingface_hub: a cache that is empty at first, and a network that answers or does not."""

    def __init__(self, cached: Path | None, network: Path | Exception) -> None:
        super().__init__("huggingface_hub")
        self.cached, self.network, self.asked = cached, network, list[str]()

    def hf_hub_download(self, repo: str, name: str, *, repo_type: str, local_files_only: bool = False) -> str:
        assert (repo, repo_type) == (HUB, "dataset")
        self.asked.append(("cache " if local_files_only else "network ") + name)
        if local_files_only:
            if self.cached is None:
                raise FileNotFoundError("not in the cache")
            return str(self.cached)
        assert not isinstance(self.network, Exception), "a download tries for half a minute"
        return str(self.network)

    def hf_hub_url(self, repo: str, name: str, *, repo_type: str) -> str:
        assert (repo, repo_type) == (HUB, "dataset")
        return name

    def get_hf_file_metadata(self, name: str) -> None:
        self.asked.append(f"question {name}")
        if isinstance(self.network, Exception):
            raise self.network


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """Two rows as the hub has them."""
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([HENS, COWS]), path)
    return path


def test_the_hubs_file_gives_the_same_problems_as_the_folder(
    tmp_path: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(cached=None, network=parquet)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    from_hub, from_folder = load("train"), load("train", write(tmp_path, HENS, COWS))
    assert from_hub == from_folder
    name = "main/train-00000-of-00001.parquet"
    assert hub.asked == [f"cache {name}", f"question {name}", f"network {name}"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(parquet, network=OSError("no network")))
    assert len(load("test")) == 2  # from the cache


@pytest.mark.parametrize(
    "error",
    [OSError("no route\nand more"), ConnectionError(), PermissionError(13, "no"), RuntimeError("of the HTTP library")],
)
def test_offline_and_nothing_there_is_one_line_that_says_what_to_do(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(None, network=error))
    with pytest.raises(UserError) as raised:
        load("test")
    message = str(raised.value)
    assert HUB in message and "DATA=<folder with train.jsonl and test.jsonl" in message
    assert "\n" not in message and "()" not in message


def test_without_the_hubs_library_the_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"DATA=<folder with train\.jsonl .* or install the extra llm"):
        load("test")


def test_the_real_library_offline_ends_in_the_same_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason=hint("llm"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"neither in the hub's cache nor can it be fetched .* give DATA="):
        load("test")


def test_a_broken_download_and_a_broken_row_of_it_are_one_line(
    tmp_path: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow
    import pyarrow.parquet

    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(parquet, network=OSError()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([HENS, {**HENS, "answer": "three"}]), parquet)
    with pytest.raises(UserError, match=re.escape(f"{HUB} main/test-00000-of-00001.parquet, row 2: ")):
        load("test")
    parquet.write_bytes(b"not found")
    with pytest.raises(UserError, match="is not Parquet; delete it"):
        load("test")


# Imports --------------------------------------------------------------------------------------------------------------


def test_text_modules_import_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from staleharness.language import answer_grading, problem, problem_files, prompt_formatting\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("torch", "transformers", "datasets", "huggingface_hub", "pandas", "pyarrow", "numpy"):
        assert f"'{heavy}'" not in done.stdout


def test_every_real_gold_is_a_whole_number_that_reads_as_written() -> None:
    for _, _, gold in real_rows():
        assert number(gold) == int(gold.replace(",", ""))
