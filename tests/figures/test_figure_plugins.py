"""Figures and exporters of the user's own: by file, by folder, by the entry point of a package."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli
from places import ROOT

from staleharness.algorithm import ALGORITHMS
from staleharness.base import module_registry
from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.errors import UserError
from staleharness.exporters.exporter import EXPORTERS
from staleharness.figures.registry import FIGURES, SHEETS

PLUGIN = """
from staleharness.exporters.exporter import EXPORTERS
from staleharness.figures.registry import FIGURES, Section


@FIGURES.register("mine", Section(0, "A figure of mine", "Nothing but a line."))
def draw(results, table, width):
    from matplotlib.figure import Figure

    figure = Figure((width, 2))
    figure.subplots().plot([0, len(results)])
    return figure


@EXPORTERS.register("latex", "\\\\input {folder}/runs.tex")
def write(runs, folder):
    path = folder / "runs.tex"
    path.write_text(" ".join(run.id for run in runs))
    return [path]
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(PATH_VARIABLE, "")
    list(ALGORITHMS)
    monkeypatch.setattr(ALGORITHMS, "_loaded_files", dict(ALGORITHMS._loaded_files))
    monkeypatch.setattr(ALGORITHMS, "_complete", None)
    monkeypatch.setattr(module_registry, "_LOADERS", {})
    for registry in (FIGURES, SHEETS, EXPORTERS):
        list(registry)
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_origins", dict(registry._origins))
    monkeypatch.setattr(module_registry, "_LOADERS", {})
    yield
    ALGORITHMS._complete = None


@pytest.mark.parametrize("way", ["file", "folder", "folders by kind", "entry point"])
def test_figures_and_exporters_are_plugins(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    files = {
        "file": ["p/mine.py"],
        "folder": ["p/mine.py"],
        "folders by kind": ["p/figures/mine.py", "p/exporters/mine.py"],
        "entry point": ["site/figure_of_mine.py"],
    }
    for name in files[way]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PLUGIN if "exporters" not in name else PLUGIN.replace('"mine"', '"other"'))
    if way == "folders by kind":
        text = (tmp_path / "p/figures/mine.py").read_text()
        (tmp_path / "p/figures/mine.py").write_text(text.replace('"latex"', '"other"'))
    if way == "entry point":
        (site / "mine-1.0.dist-info").mkdir()
        (site / "mine-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        points = "[staleharness.figures]\nmine = figure_of_mine\n[staleharness.exporters]\nmine = figure_of_mine\n"
        (site / "mine-1.0.dist-info" / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, "figure_of_mine", raising=False)
    else:
        monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "p" / "mine.py" if way == "file" else tmp_path / "p"))
    assert "mine" in FIGURES and "latex" in EXPORTERS and "mine" not in SHEETS
    assert list(ALGORITHMS), "a file without an algorithm is a plugin all the same"


def test_a_figures_name_is_claimed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "mine.py"))
    name, entry = next(iter(FIGURES._entries.items()))
    (tmp_path / "mine.py").write_text(PLUGIN.replace('"mine"', repr(name)))
    with pytest.raises(UserError, match=f"the figure {name!r} is claimed twice: .*; rename one of them") as error:
        list(FIGURES)
    assert f"by {entry.draw.__qualname__} in {inspect.getsourcefile(entry.draw)} and " in str(error.value)
    assert f"by draw in {tmp_path / 'mine.py'}; " in str(error.value)


def test_two_files_with_one_exporter_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "first.py", tmp_path / "second.py"]
    for file in files:
        file.write_text(PLUGIN[PLUGIN.index("@EXPORTERS") :])
        file.write_text("from staleharness.exporters.exporter import EXPORTERS\n" + file.read_text())
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    with pytest.raises(UserError) as error:
        list(EXPORTERS)
    line = "the export 'latex' is claimed twice: by write in {} and by write in {}; rename one of them"
    assert str(error.value) == line.format(*files)


@pytest.mark.usefixtures("short_report")
@pytest.mark.long
def test_report_and_export_take_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    bundle = str(tmp_path / "results")
    shutil.copytree(ROOT / "results" / "reference" / "quick_hopper", bundle)
    words = ["--plugin", str(tmp_path / "mine.py"), "--out", bundle, "--algo", "ppo_clip"]
    code, out, err = cli("export", "latex", *words, "--to", str(tmp_path / "to"))
    assert code == 0, err
    assert "\\input" in out and (tmp_path / "to" / "runs.tex").read_text()
    monkeypatch.setenv(PATH_VARIABLE, "")
    code, out, err = cli("report", *words)
    assert code == 0, err
    (page,) = Path(bundle).glob("reports/*/index.html")
    assert "A figure of mine" in page.read_text()


def test_tests_beside_plugins_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    for name in ("test_mine.py", "conftest.py"):
        (tmp_path / name).write_text("raise ValueError('a test, not a plugin')")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    assert "mine" in FIGURES
