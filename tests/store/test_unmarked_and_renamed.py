"""Results that lost their mark are not lost, and a study finds its runs whatever it calls their methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run
from sweeping import staleharness, without_report

from staleharness.errors import UserError
from staleharness.store.bundle_writer import pack
from staleharness.store.store import MARKER, Store

STUDY = """
env = "bit-chain"
algorithm = ["ppo_clip[clip=0.2]", "spo"]
capacity = 2
lag = "fixed[lag=1]"
seeds = 1
[settings]
steps = 2
batch = 8
horizon = 8
evaluations = 1
"""


@pytest.mark.parametrize("left", [None, "", "{"])
def test_what_is_said_of_a_lost_mark_brings_the_results_back(tmp_path: Path, left: str | None) -> None:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    store = Store(tmp_path / "results")
    mark = store.root / MARKER
    mark.unlink()
    if left is not None:
        mark.write_text(left)
    for check in (store.check, store.check_readable):
        with pytest.raises(UserError, match=r'if they are of this version, write \{"format": 2\} into'):
            check()
    mark.write_text('{"format": 2}')
    store.check()
    assert len(store.read_all()) == 1


@pytest.mark.parametrize("part", ["runs", "attempts", "runs/0123"])
def test_a_part_of_results_names_the_folder_they_are_in(tmp_path: Path, part: str) -> None:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    (tmp_path / "results" / part).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match=r"^A=x is only a part of the results in .*results; give that folder$"):
        Store(tmp_path / "results" / part).check_readable("A=x")


def test_a_folder_of_that_name_that_is_somebody_elses_is_no_results(tmp_path: Path) -> None:
    (tmp_path / "runs" / "Jan01_tensorboard").mkdir(parents=True)
    with pytest.raises(UserError, match="something other than staleharness results"):
        Store(tmp_path).check()


@pytest.mark.parametrize(
    "before",
    ["stalebench/tokens/staleharness.json", "stalebench/tokens/tokens.html", "a/b/staleharness.json", ".DS_Store"],
)
def test_results_of_other_commands_do_not_close_a_folder(before: str, tmp_path: Path) -> None:
    """`make benchmark` and a sweep, in whichever order, in a fresh checkout."""
    file = tmp_path / "results" / before
    file.parent.mkdir(parents=True)
    file.write_text('{"format": 2}')
    store = Store(tmp_path / "results")
    store.open_for_writing()
    assert (store.root / MARKER).is_file()
    with pytest.raises(UserError, match="holds something other than a bundle"):
        pack(str(write_run(tmp_path / "mine", "spo", 0, phases=2).path.parent.parent), str(store.root), None)


@pytest.mark.parametrize("other", ["papers/README.md", "papers/notes.html", "stalebench/tokens/a.txt", "empty/empty"])
def test_folders_of_somebody_else_keep_a_folder_closed(other: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    Store(tmp_path / "theirs/of_ours").open_for_writing()
    place = tmp_path / "theirs" / other
    place.parent.mkdir(parents=True)
    place.mkdir() if other.startswith("empty") else place.write_text("")
    with pytest.raises(UserError, match="something other than staleharness results"):
        Store(tmp_path / "theirs").check()


@pytest.mark.parametrize("place", ["runs/new", "runs", "attempts/a/b", "new/../runs/new", "link/new"])
def test_nothing_is_made_among_the_runs_of_results(place: str, tmp_path: Path) -> None:
    """Each read warned of a damaged run of that name."""
    results = tmp_path / "results"
    write_run(results, "spo", 0, phases=2)
    (results / "link").symlink_to("runs")
    there, before = str(results / place), sorted(results.rglob("*"))
    for words in (("TO", lambda: pack(str(results), there, None)), ("OUT", Store(there).check)):
        with pytest.raises(
            UserError, match=f"^{words[0]}=.* lies inside the (runs|attempts) of the results in .*/results"
        ):
            words[1]()
    assert sorted(results.rglob("*")) == before


def test_a_bundle_goes_where_a_file_browser_has_been(tmp_path: Path) -> None:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/.DS_Store").write_bytes(b"Bud1")
    assert "packed 1 runs" in pack(str(tmp_path / "results"), str(tmp_path / "bundle"), None)


@pytest.mark.long
def test_a_study_is_packed_whatever_its_file_calls_methods_and_lag(tmp_path: Path) -> None:
    """A default that is written out is no other method."""
    study, out = tmp_path / "study.toml", tmp_path / "results"
    study.write_text(STUDY)
    with without_report():
        assert staleharness("sweep", "--spec", str(study), "--out", str(out)).returncode == 0
    done: Any = staleharness("pack", str(out), str(tmp_path / "bundle"), "--spec", str(study))
    assert done.returncode == 0 and "packed 2 of 2 runs" in done.stdout, done.stdout + done.stderr


def test_the_root_of_all_folders_is_no_place_for_a_bundle(tmp_path: Path) -> None:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    with pytest.raises(UserError, match="TO=/ is not a place for a bundle"):
        pack(str(tmp_path / "results"), "/", None)
