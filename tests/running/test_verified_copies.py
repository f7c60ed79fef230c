"""Verify says nothing of a run that was not made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import swept
from known_plugins import TABULAR, known
from sweeping import staleharness

from staleharness.running.plan import plan
from staleharness.store.bundle_writer import pack, unpack
from staleharness.store.store import Store
from staleharness.store.study import ask


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("once") / "results"
    with known(TABULAR):
        swept(out, plan(ask(env="random-mdp-0", k="2", algo="spo", seeds="1", steps="640")).runs)
    return out


def test_the_run_itself_and_a_copy_of_it_are_refused(once: Path, tmp_path: Path, tabular: Path) -> None:
    bundle, copy = tmp_path / "bundle", tmp_path / "copy"
    pack(str(once), str(bundle), None)
    unpack(str(bundle), str(copy))
    (run,) = Store(once).read_all()
    pairs = [(once, once), (bundle, copy), (once / "runs" / run.id, copy), (bundle, bundle)]
    for source, out in pairs:
        done = staleharness("verify", str(source), "--out", str(out))
        assert done.returncode == 2, done.stdout
        assert f"holds run {run.id} itself or a copy, and not one made again" in done.stderr
        assert not done.stdout and done.stderr.count("\n") == 1
