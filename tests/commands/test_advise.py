"""`staleharness advise`: tables, JSON, pictures, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from results_helper import write_run

CONTROL = str(ROOT / "results" / "reference" / "vaco_control")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("stored")
    for label, scores in (("vaco", (1000, 990, 300)), ("spo", (800, 200, 100))):
        for k, score in zip((1, 4, 16), scores, strict=True):
            for seed in range(3):
                write_run(root, label, seed, capacity=k, sampled=score + seed)
    for seed in range(2):
        write_run(root, "impala", seed, capacity=1)
    return str(root)


def test_without_a_pipeline_there_are_budgets_and_seeds(call: Any, runs: str) -> None:
    code, out, err = call("advise", "--results", runs)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "Hopper-v5: share of the synchronous score that is kept" in lines
    (vaco,) = (line for line in lines if line.startswith("vaco"))
    (spo,) = (line for line in lines if line.startswith("spo"))
    assert "99% [99, 99]" in vaco and "< " not in vaco and "< " in spo
    assert "no answer for impala on Hopper-v5: no stale runs, only runs with lag 0" in out
    assert "with 3 seeds a nominal 95 % interval" in out and "pipeline" not in out
    assert max(map(len, lines)) <= 130


def test_a_pipeline_adds_caps_binding_parts_and_best_scores(call: Any, runs: str) -> None:
    code, out, _ = call(
        "advise", f"--results={runs}", "--preset=async", "--set", "slots=128,steps=60", "--cap=0,1,none"
    )
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith(("cap ", "cap none"))] == ["0", "1", "none"]
    assert "highest score at each speed:" in out and "binds): vaco" in out
    (vaco,) = (line for line in out.splitlines() if line.startswith("vaco"))
    assert " cap 1 " in vaco and "–" in vaco  # no cap is beyond the data


def test_json_is_one_object_and_the_text_goes_to_stderr(call: Any, runs: str, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("lag\n1\n2\n")
    code, out, err = call(
        "advise", "--results", runs, f"--log={tmp_path / 'run.csv'}", "--cap=0,2", "--set=steps=40", "--json"
    )
    found = json.loads(out)
    assert code == 0 and "verdict" not in out.splitlines()[0][:20] and "share of the synchronous" in err
    assert found["log"]["mean"] == 1.5 and [c["cap"] for c in found["pipeline"]] == [0, 2]
    assert {m["algorithm"] for m in found["methods"]} == {"vaco", "spo"}
    assert all(m["log"]["verdict"] in ("kept", "lost", "cannot tell") for m in found["methods"])
    assert found["refused"][0]["algorithm"] == "impala" and found["settings"]["keep"] == 0.95


@pytest.mark.parametrize(
    "arguments, source, words",
    [
        (["--log=prime_rl_now.csv"], "stress_lags", "word-problems, at a mean lag of 2.00 versions over rows"),
        (["--log=areal.csv"], "stress_lags", "word-problems, at a mean lag of 2.40 versions over decisions"),
        (["--log=pipelinerl_new.csv", "--batch=64"], "stress_lags", "LAG='log[file={log},per_phase=64]'"),
        (["--log=prime_rl_now.csv", "--env=Hopper"], "vaco_control", "Hopper-v5, at a mean lag of 2.00 versions"),
    ],
    ids=["prime-rl", "AReaL", "PipelineRL", "control"],
)
@pytest.mark.long
def test_a_log_alone_is_answered(call: Any, arguments: list[str], source: str, words: str) -> None:
    log = str(ROOT / "tests" / "data" / "logs" / arguments[0].removeprefix("--log="))
    code, out, err = call("advise", f"--log={log}", *arguments[1:])
    assert (code, err) == (0, "")
    assert f"results/reference/{source}; RESULTS=FOLDER uses others" in out.splitlines()[-1]
    _, _, end = out.partition("conclusion:")
    assert words.format(log=log) in end and "to train under these lags: make sweep ENV=" in end


@pytest.mark.parametrize(
    ("envs", "words"),
    [
        ("word-problems,gsm8k", "ENV: no run here is of 'gsm8k'; known: word-problems"),
        (" gsm8k , word-problems", "ENV: no run here is of 'gsm8k'; known: word-problems"),
        ("gsm8k", "ENV: no run here is of 'gsm8k'; known: word-problems"),
        ("word-problems-moe", "no run here is of 'word-problems-moe'; did you mean 'word-problems'?"),
        ("Hopper,Ant", "ENV: no run here is of 'Ant'; known: HalfCheetah-v5, Hopper-v5, Walker2d-v5"),
    ],
)
def test_a_log_asks_the_published_runs_on_the_named_tasks(call: Any, envs: str, words: str) -> None:
    code, out, err = call("advise", f"--log={ROOT / 'tests' / 'data' / 'logs' / 'prime_rl_now.csv'}", "--env", envs)
    assert (code, out) == (2, "") and words in err and len(err.splitlines()) == 1


def test_a_log_in_samples_needs_the_batch(call: Any) -> None:
    code, out, err = call("advise", f"--log={ROOT / 'tests' / 'data' / 'logs' / 'pipelinerl_new.csv'}")
    assert (code, out) == (2, "") and "counts samples; give BATCH=N" in err and len(err.splitlines()) == 1


def test_a_log_in_gradient_steps_takes_no_updates(call: Any, runs: str, tmp_path: Path) -> None:
    (tmp_path / "sf.csv").write_text("train/version_diff_avg\n3\n")
    code, out, err = call("advise", f"--results={runs}", f"--log={tmp_path / 'sf.csv'}", "--updates=3")
    assert (code, out) == (2, "") and "LOG=sf.csv are in gradient steps, so leave UPDATES out" in err


def test_steps_logged_twice_are_told(call: Any, runs: str, tmp_path: Path) -> None:
    lines = [f"{step},1" for step in range(100)] + [f"{step},9" for step in range(50, 100)]
    (tmp_path / "run.csv").write_text("\n".join(["step,off_policy/mean", *lines, ""]))
    code, out, _ = call("advise", f"--results={runs}", f"--log={tmp_path / 'run.csv'}")
    assert code == 0 and "mean lag 5.00 versions over rows, each counted once (100 steps)" in out
    assert "50 steps were logged twice: the last value of each counts" in " ".join(out.split())


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_the_same_each_time(call: Any, runs: str, tmp_path: Path, kind: str) -> None:
    for name in ("a", "b"):
        code, out, _ = call(
            "advise", f"--results={runs}", f"--out={tmp_path / name}.{kind}", "--cap=0,1", "--set=steps=40"
        )
        assert code == 0 and out.splitlines()[-1] == f"wrote {tmp_path / name}.{kind}"
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_only_a_picture_of_advise_is_replaced(call: Any, runs: str, tmp_path: Path, kind: str) -> None:
    from matplotlib.figure import Figure

    results, target = tmp_path / "résultats", tmp_path / f"figure.{kind}"
    results.symlink_to(runs)
    Figure().savefig(target)  # another program's
    before = target.read_bytes()
    code, out, err = call("advise", f"--results={results}", f"--out={target}")
    assert (code, out) == (2, "") and f"{target} is not a picture made by advise and would be overwritten" in err
    assert target.read_bytes() == before
    target.unlink()
    for asked in ([], ["--cap=0,1", "--set=steps=40"]):
        assert call("advise", f"--results={results}", f"--out={target}", *asked)[0] == 0


def test_published_results_are_read_by_environment(call: Any) -> None:
    code, out, _ = call("advise", "--results", CONTROL, "--algo=vaco,a3po", "--json")
    found = json.loads(out)
    assert code == 0 and {m["env"] for m in found["methods"]} == {"HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"}
    assert len(found["methods"]) == 6 and found["refused"] == []
    assert [m["gradient_steps_per_phase"] for m in found["methods"]] == [pytest.approx(80)] * 6


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--keep=2"], "KEEP=2 must be above 0 and below 1"),
        (["--keep=most"], "KEEP='most' is not a number"),
        (["--updates=-1", "--preset=async"], "UPDATES=-1 must be above 0"),
        (["--updates=8"], "UPDATES counts gradient steps per version of a pipeline or log"),
        (["--zero=low"], "ZERO='low' is not a number, worst or auto"),
        (["--zero=true"], "ZERO='true' is not a number"),
        (["--zero=nan"], "ZERO='nan' is not a number"),
        (["--zero=inf"], "ZERO='inf' is not a number"),
        (["--log="], "advise: --log='' is empty; give FILE"),
        (["--cap="], "advise: --cap='' is empty; give N,..."),
        (["--cap=-2"], "CAP=-2: cap must be above -1"),
        (["--cap=1e308"], "CAP=1e+308: cap must be at most 1e+09, or none"),
        (["--cap=x"], "CAP='x' is not a number"),
        (["--set=cap=2"], "SET takes no cap here: give the caps to try as CAP="),
        (["--preset=asink"], "no preset is called 'asink'; did you mean 'async'?"),
        (["--columns=lag=x"], "give LOG=FILE"),
        (["--log=nowhere.csv"], "LOG=nowhere.csv is not a file"),
        (["--algo=impala"], "no advice from these results: no stale runs, only runs with lag 0 (impala on Hopper-v5)"),
        (["--env=Ant"], "ENV: no run here is of 'Ant'; known: Hopper-v5"),
        (
            ["--results=nowhere"],
            "RESULTS=nowhere is not a folder of results; `staleharness sweep` makes some, and results/ref",
        ),
        ([f"--results={Path(CONTROL).parent}"], "these folders in it do: a3po_language, a3po_wall_clock"),
        (["--out=advice.txt"], "give one that ends in .png, .svg, .pdf"),
        (["--out=no/such/advice.png"], "there is no folder no/such"),
        (["--score=samples"], "score='samples' is not known; did you mean 'sampled'?"),
        (["--reslts=x"], "advise has no option --reslts; did you mean '--results'?"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_one_line_and_nothing_is_written(call: Any, runs: str, arguments: list[str], words: str) -> None:
    given = [] if any(a.startswith(("--results", "--reslts")) for a in arguments) else [f"--results={runs}"]
    out = [] if any(a.startswith("--out") for a in arguments) else ["--out=advice.png"]
    code, shown, err = call("advise", *given, *arguments, *out)
    assert (code, shown) == (2, "") and words in err and len(err.splitlines()) == 1
    assert not Path("advice.png").exists()
