"""The pages: what they name is there, and what they execute works."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest
from known_plugins import loaded_plugins
from places import ROOT

from staleharness.api import list_algorithms
from staleharness.pipeline.pipeline_settings import Pipeline
from staleharness.statistics.results import load

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "log.md"),  # files of their day
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
# groups of entry points, and the marker of a results folder
NO_MODULES = {f"staleharness.{name}" for name in ("algorithms", "envs", "lags", "decoders", "json")}
FOLDERS = "staleharness|tests|docs|constraints|experiments|algorithms|envs"
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_modules_and_files_that_a_page_names_exist(page: Path) -> None:
    text = prose(page)
    for path in re.findall(rf"(?<!/)\b((?:{FOLDERS})/[\w/]+\.\w+|tests/\w+/)", text):
        if "my_" not in path and "XX" not in path:  # the reader's own, still to be written; any Python's
            assert (ROOT / path).exists(), path
    for name in re.findall(r"`(staleharness(?:\.\w+)+)`", text):
        if name in NO_MODULES:
            continue
        parts = name.split(".")
        modules = [".".join(parts[:i]) for i in range(len(parts), 0, -1)]
        found = next(m for m in modules if len(m.split(".")) == 1 or _is_module(m))
        rest = parts[len(found.split(".")) :]
        thing: object = importlib.import_module(found)
        for part in rest:
            thing = getattr(thing, part)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    for file, name in re.findall(r"`([\w/]+\.py)::(test_\w+)`", prose(page)):
        found = [ROOT / file] if "/" in file else [*(ROOT / "tests" / "running").glob(file)]
        assert found and f"\ndef {name}(" in prose(found[0]), f"{file}::{name}"


def test_every_setting_of_a_pipeline_is_on_its_page() -> None:
    text = re.sub(r"^```.*?^```$", "", prose(ROOT / "docs" / "pipeline.md"), flags=re.DOTALL | re.MULTILINE)
    code = " ".join(re.findall(r"`([^`]+)`", text))
    assert [name for name in Pipeline().to_json() if not re.search(rf"\b{name}\b", code)] == []


def test_the_page_of_settings_is_what_the_specs_say() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate_settings.py"))
    text = prose(ROOT / "docs" / "settings.md")
    assert made["page"]() == text, "run make docs"
    for kind in made["KINDS"].values():
        for name in set(kind.settings()) - made["DIGESTS"]:
            assert f"| `{name}` |" in text, name


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_architecture_describes_packages_and_additions() -> None:
    text = prose(ROOT / "docs" / "architecture.md")
    packages = [p.name for p in (ROOT / "staleharness").iterdir() if (p / "__init__.py").is_file()]
    assert len(packages) > 10
    for package in packages:
        assert f"**{package}/**" in text, package
    table = text.partition("## The one file to write")[2]
    additions = "algorithm|environment|lag model|mismatch model|kind of task|runner|decoder|figure|exporter|command"
    for what in additions.split("|"):
        assert re.search(rf"^\| an? {what} \|", table, re.MULTILINE), what


@pytest.mark.long
def test_the_first_study_runs_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run it as a script in an empty folder: it has no guard, as a notebook has none."""
    script = ROOT / "docs" / "first_study.py"
    assert script.read_text(encoding="utf-8").count("# %%") >= 6
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    with loaded_plugins():
        made = runpy.run_path(str(script), run_name="__main__")
    made["plt"].close("all")
    lines = capsys.readouterr().out.splitlines()
    assert "8 runs" in lines and "10 runs are stored" in lines
    assert sum(line.startswith("phase ") for line in lines) == 4
    assert any(line.startswith("my_idea[cap=2.0] ") for line in lines)
    assert (tmp_path / "first_study.png").stat().st_size > 5_000


def test_the_notebook_has_the_script_and_was_executed() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate_notebook.py"))
    cells = json.loads(prose(ROOT / "docs" / "first_study.ipynb"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [text for _, text in made["cells"]() if text], "run python docs/generate_notebook.py"
    outputs = [out for cell in cells if cell["cell_type"] == "code" for out in cell["outputs"]]
    text = "".join(text for out in outputs for text in out.get("text", []))
    assert all(method["summary"] in text for method in list_algorithms() if method["core"]), "of an earlier version"
    assert any("10 runs are stored" in "".join(out.get("text", [])) for out in outputs)
    assert any("image/png" in out.get("data", {}) for out in outputs)
    published = load(ROOT / "results" / "reference" / "quick_hopper").table().answers
    assert published and published[-1] in "".join(outputs[-1]["text"]), "its last lines say what lag costs"
