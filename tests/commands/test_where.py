"""A folder with two runs of one seed and cell: WHERE says which, in every verb that chooses stored runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Cli
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.statistics.claims.study_evidence import Evidence
from staleharness.statistics.results import Results, load
from staleharness.store.run_selection import cell_filter, filter_runs


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for lag in ("uniform", "oldest"):
        for seed in (0, 1):
            write_run(tmp_path, "vaco", seed, capacity=4, settings={"lag": lag})
    return str(tmp_path)


@pytest.mark.usefixtures("short_report")
@pytest.mark.long
def test_a_report_asks_which_makes_no_folder_and_then_takes_it(folder: str, cli: Cli) -> None:
    code, out, err = cli("report", "--out", folder)
    assert (code, out) == (2, "") and err.count("\n") == 1
    choice = err.rpartition("choose with WHERE=")[2].strip()
    assert choice in ("lag=uniform", "lag=oldest")
    assert not (Path(folder) / "reports").exists()
    code, out, _ = cli("report", "--out", folder, "--where", choice, "--json")
    assert code == 0
    (row,) = json.loads(out)["table"]
    assert (row["algorithm"], row["n_runs"]) == ("vaco", 2)


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize(("env", "asked"), [("Hopper-v5", "raw"), ("Pendulum-v1", "raw"), ("Pendulum-v1", "auto")])
def test_a_report_says_why_returns_are_as_they_are(env: str, asked: str, tmp_path: Path, cli: Cli) -> None:
    write_run(tmp_path, "vaco", 0, env=env, capacity=4)
    code, out, _ = cli("report", "--out", str(tmp_path), *(() if asked == "auto" else ("--normalise", asked)))
    assert code == 0 and ("has no reference score" in out) == (asked == "auto")


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--out", "{}"),
        ("export", "csv", "--out", "{}"),
        ("verify", "{}"),
        ("advise", "--results", "{}"),
        ("compare", "{}", "elsewhere"),
    ],
    ids=lambda words: words[0],
)
def test_every_verb_that_chooses_runs_hears_it(folder: str, words: tuple[str, ...], cli: Cli) -> None:
    asked = [word.format(folder) for word in words]
    code, out, err = cli(*asked, "--where", "lagg=oldest")
    assert (code, out) == (2, "")
    assert err.endswith("WHERE: no run here has a setting 'lagg'; did you mean 'lag'?\n")


def test_an_environment_named_with_its_version_is_that_one_alone(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "vaco", 0, env=env) for env in ("Hopper-v4", "Hopper-v5")]
    results = Results.of(runs)
    evidence = Evidence(results, results.table(reps=50, engine="quick"))
    assert evidence.envs("Hopper-v4") == ["Hopper-v4"]
    assert evidence.envs("Hopper") == ["Hopper-v4", "Hopper-v5"]


def test_a_run_older_than_a_setting_has_its_before_value(tmp_path: Path) -> None:
    old = write_run(tmp_path, "vaco", 0)
    new = write_run(tmp_path, "vaco", 1, settings={"warm_phases": 3}, said={"before": {"warm_phases": 0}})
    assert filter_runs([old, new], cell_filter(), "warm_phases=0") == [old]
    assert filter_runs([old, new], cell_filter(), {"warm_phases": 3}) == [new]
    option = {"hyper": {"kl": "auto"}}
    newest = write_run(tmp_path, "vaco", 2, settings=option, said={"before": {"hyper": {"kl": "none"}}})
    assert filter_runs([old, newest], cell_filter(), "vaco.kl=none") == [old]
    assert filter_runs([old, newest], cell_filter(), "vaco.kl=auto") == [newest]


def test_a_list_selects_any_of_its_values(folder: str) -> None:
    results = load(folder)
    assert len(results.select(where={"seed": [0, 7]})) == 2 and len(results.select(where={"seed": range(2)})) == 4
    assert {run.spec["lag"] for run in results.select(where={"lag": ["oldest"]})} == {"oldest"}


def test_a_report_names_the_failed_runs_of_its_folder(tmp_path: Path, cli: Cli) -> None:
    for seed in range(2):
        write_run(tmp_path, "ppo_clip", seed, phases=4)
    attempt = tmp_path / "attempts" / "0123456789ab"
    attempt.mkdir(parents=True)
    spec = {"env": "Hopper-v5", "capacity": 8, "seed": 0}
    (attempt / "job.json").write_text(json.dumps({"label": "mine", "phases": 4, "spec": spec}))
    (attempt / "failure.json").write_text(json.dumps({"class": "Diverged", "message": "loss is nan", "log_tail": ""}))
    code, out, err = cli("report", "--out", str(tmp_path))
    assert code == 0, err
    assert "1 of 3 runs missing: mine seed 0 (Diverged)" in " ".join(out.split())
    page = (tmp_path / "reports" / "report-all" / "index.html").read_text()
    assert "mine on Hopper-v5 K=8 seed 0" in page and "loss is nan" in page
    code, out, err = cli("report", "--out", str(tmp_path), "--algo", "ppo_clip")
    assert code == 0 and "missing" not in out
    code, out, err = cli("report", "--out", str(tmp_path), "--algo", "ppo_clip,mine", "--where", "seed=0")
    assert code == 0 and "1 of 2 runs missing: mine seed 0 (Diverged)" in " ".join(out.split()), err
    code, out, err = cli("report", "--out", str(tmp_path), "--where", "seed=1")
    assert code == 0 and "missing" not in out
    code, out, err = cli("report", "--out", str(tmp_path), "--algo", "ppo_clip,mind")
    assert (code, err) == (2, "staleharness: ALGO: no run here is of 'mind'; did you mean 'mine'?\n")
    code, out, err = cli("report", "--out", str(tmp_path), "--algo", "vacoo")
    assert (code, out) == (2, "") and "ALGO: no run here is of 'vacoo'" in err
    code, out, err = cli("report", "--out", str(tmp_path), "--normalise", "raw", "--score", "deterministic")
    assert code == 0 and (tmp_path / "reports" / "report-deterministic-raw" / "index.html").is_file()
    write_run(tmp_path, "ppo_clip", 0, phases=4, settings={"lag": "oldest"})
    code, out, err = cli("report", "--out", str(tmp_path), "--json")
    assert (code, out) == (2, "") and "WHERE=lag=oldest" in err and "yet" not in err


def test_a_name_that_no_side_has_is_refused(tmp_path: Path, cli: Cli) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for seed in range(2):
        write_run(a, "ppo_clip", seed, phases=4)
        write_run(b, "ppo_clip", seed, phases=4)
        write_run(b, "vaco", seed, phases=4)
    code, out, err = cli("compare", str(a), str(b), "--algo", "ppo_clip,vaco")
    assert code == 0 and "only B has vaco" in out, err
    code, out, err = cli("compare", str(a), str(b), "--algo", "ppo_clip,vaca")
    assert (code, err) == (2, "staleharness: ALGO: no run here is of 'vaca'; did you mean 'vaco'?\n")


def test_a_report_links_to_the_logs_that_there_are(tmp_path: Path, cli: Cli) -> None:
    """Runs that come from a bundle have none."""
    runs = [write_run(tmp_path, "ppo_clip", seed, phases=4) for seed in range(2)]
    for run in runs:
        (run.path / "log.txt").unlink(missing_ok=True)
    (runs[0].path / "log.txt").write_text("A line.\n")
    assert cli("report", "--out", str(tmp_path))[0] == 0
    page = (tmp_path / "reports" / "report-all" / "index.html").read_text()
    assert [f"{run.id}/log.txt" in page for run in runs] == [True, False]
    assert all(f"{run.id}/run.json" in page for run in runs)


def test_a_wrong_number_of_resamples_is_one_line(folder: str) -> None:
    with pytest.raises(UserError, match="reps=a: a bootstrap needs at least 10 resamples"):
        load(folder).select(where="lag=uniform").table(reps="a")
