"""`import staleharness as sh`: what it offers, what it loads, and that it says the same as the command line."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import Cli
from known_plugins import loaded_plugins
from places import ROOT
from raising import raising
from sweeping import message, staleharness, without_report

import staleharness as sh
from staleharness.batch import Completions, Rollout
from staleharness.running.plan import plan as resolve
from staleharness.study import sweep_request

SIZE: dict[str, Any] = {"num_envs": 2, "num_steps": 32, "epochs": 1, "minibatches": 2, "evaluations": 1}
SIZE |= {"evaluation_episodes": 1, "final_episodes": 1}
TINY = ",".join(f"{key}={value}" for key, value in SIZE.items())
ASKED: dict[str, Any] = {"env": "Pendulum", "steps": 128, "settings": SIZE}

BREAKS = '''
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS
from staleharness.algorithm import Algorithm

@ALGORITHMS.register("breaks")
@dataclass(frozen=True)
class Breaks(Algorithm):
    """Cannot be trained."""
    paper = "none"

    def policy_loss(self, d):
        raise ValueError("broken on purpose")
'''

# As a user writes one: nothing is guarded, and what a worker does is done in no worker twice.
SCRIPT = f"""
import sys
import staleharness as sh

with open("executed.txt", "a") as log:
    log.write("once\\n")
events = []
results = sh.sweep(
    env="Pendulum", k=[1, 2], algo="spo", seeds=1, steps=128, settings={SIZE!r}, out="out", progress=events.append
)
print(len(results), sorted({{e["event"] for e in events}}), {{e["capacity"] for e in events}}, "torch" in sys.modules)
"""


def program(code: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": ""}
    (folder / "script.py").write_text(code)
    words = [sys.executable, *options, "script.py"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder in which a plain script swept two runs, and what it said."""
    folder = tmp_path_factory.mktemp("script")
    return folder, program(SCRIPT, folder)


# --- what it offers


def test_every_name_is_there_documented_and_listed() -> None:
    assert set(sh.__all__) <= set(dir(sh))
    for name in sh.__all__:
        assert inspect.getdoc(getattr(sh, name)), name
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = sh.swep  # type: ignore[attr-defined]


def test_importing_it_loads_no_library_and_little_of_its_own(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import staleharness as sh; dir(sh); sh.__version__\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new), sorted(m for m in sys.modules if m.startswith('staleharness.')))\n"
        "sh.load\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'tyro', 'rich', 'gymnasium'} & set(sys.modules)))"
    )
    done = program(code, tmp_path)
    assert done.stdout.splitlines() == ["['staleharness'] ['staleharness.base']", "[]"], done.stderr


def test_the_lists_are_those_of_the_command_line(cli: Cli) -> None:
    told = json.loads(cli("list", "--json")[1])
    ours = {
        "algorithms": sh.list_algorithms(),
        "envs": sh.list_envs(),
        "lags": sh.list_lags(),
        "mismatches": sh.list_mismatches(),
    }
    assert told == json.loads(json.dumps(ours))
    assert "vaco" in set(pd.DataFrame(sh.list_algorithms())["name"])


# --- planning: one way


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (
            {"env": ["Hopper", "Ant"], "k": [1, 8], "algo": ["spo", "vaco[delta=0.1,rho_bar=2]"], "seeds": 2},
            {"env": "Hopper,Ant", "k": "1,8", "algo": "spo,vaco[delta=0.1,rho_bar=2]", "seeds": "2"},
        ),
        ({"env": "Hopper", "k": 4, "steps": 1e6}, {"env": "Hopper", "k": "4", "steps": "1e6"}),
        ({"env": "Hopper", "settings": {"hidden": (32, 32)}}, {"env": "Hopper", "settings": "hidden=[32,32]"}),
        (
            {"env": "Hopper", "settings": {"hidden": np.array([32, 32]), "epochs": np.int64(2)}},
            {"env": "Hopper", "settings": "hidden=[32,32],epochs=2"},
        ),
        (
            {"env": "Hopper", "settings": {"steps": 4096, "epochs": 2}, "steps": 8192},
            {"env": "Hopper", "settings": "steps=4096,epochs=2", "steps": "8192"},
        ),
        ({"env": "Hopper", "lag": "fixed:1", "k": 2}, {"env": "Hopper", "lag": "fixed:1", "k": "2"}),
    ],
)
def test_a_plan_in_python_is_the_plan_as_typed(given: dict[str, Any], typed: dict[str, str]) -> None:
    assert sh.plan(**given) == resolve(sweep_request(**typed))


def test_seeds_may_be_listed_and_a_file_overridden(tmp_path: Path) -> None:
    assert [run.spec.seed for run in sh.plan(env="Hopper", algo="spo", seeds=[7, 3]).runs] == [7, 3]
    study = tmp_path / "s.toml"
    study.write_text('env = "Hopper"\nalgorithm = "spo"\ncapacity = [1, 4]\n[paper]\ncapacity = [16]\n')
    assert sh.plan(spec=study, k=2, seeds=1).capacities == [2]
    assert sh.plan(spec=study, scale="paper", seeds=1).capacities == [16]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "ENV is missing"),
        ({"env": "Hoper"}, "did you mean 'Hopper'"),
        ({"env": []}, "names nothing"),
        ({"env": "Hopper", "seeds": []}, "SEEDS"),
        ({"env": "Hopper", "seeds": [1, 1]}, "SEEDS"),
        ({"env": "Hopper", "seeds": [-1]}, "SEEDS"),
        ({"env": "Hopper", "k": 1.5}, "K='1.5'"),
        ({"env": "Hopper", "seeds": 3.0}, r"SEEDS=3\.0 is neither a number of seeds"),
        ({"env": "Hopper", "seeds": [0.5]}, r"SEEDS=\[0\.5\]"),
        ({"env": "Hopper", "lag": 3}, "LAG='3'"),
        ({"env": "Hopper", "preset": 3}, "PRESET='3'"),
        ({"env": "Hopper", "device": 3}, "DEVICE='3'"),
        ({"env": "Hopper", "scale": 3}, "SCALE='3'"),
        ({"env": "Hopper", "settings": {1: 2}}, r"SET=\{1: 2\}"),
        ({"env": "Hopper", "settings": 5}, "SET=5"),
        ({"env": "Hopper", "settings": {"epoch": 1}}, "did you mean 'epochs'"),
        ({"env": "Hopper", "settings": {"lag": "oldest"}}, "unknown option 'lag' of Hopper-v5; give LAG=oldest"),
        ({"env": "Hopper", "settings": {"q": 1}}, "known: .*entropy_coef, envs_per_actor"),
        (
            {"env": "word-problems", "settings": {"temperature": 0.7}},
            r"no option 'temperature' of word-problems; a sampler that .* is MISMATCH=sampling\[temperature=0.7\]",
        ),
        ({"env": "Hopper", "jobs": 0}, "JOBS=0"),
        ({"env": "Hopper", "plugin": "nowhere.py"}, "nowhere.py"),
        ({"env": "Hopper", "plugin": 3}, "plugin path 3 does not exist"),
    ],
)
def test_a_mistake_is_a_user_error_and_writes_nothing(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(sh.UserError, match=words):
        sh.sweep(**given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"out": None}, "out=None is not a folder; give a path, such as 'results'"),
        ({"out": 3}, "out=3 is not a folder"),
        ({"out": ["a"]}, r"out=\['a'\] is not a folder"),
        ({"out": ""}, "out='' is empty"),
        ({"runner": 3}, "runner=3 is not a string"),
        ({"runner": None}, "runner=None is not a string"),
        ({"slurm": 3}, "slurm=3 is not a string"),
        ({"slurm": ["--time=4"]}, "slurm=.* is not a string"),
        ({"progress": 3}, "progress=3 is not a function"),
        ({"jobs": [1, 2]}, "JOBS='1,2' is not a whole number"),
        ({"memory": 2}, "MEMORY=2 is 2 bytes"),
        ({"scale": None}, "SCALE='None' is unknown"),
    ],
)
def test_an_argument_of_another_type_is_a_user_error(
    given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staleharness.running.plan_execution.execute_plan", raising(AssertionError("it was started")))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sh.UserError, match=words):
        sh.sweep(**{"env": "Pendulum", "algo": "spo", "k": 1, "seeds": 1, "steps": 2048, **given})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ((["tis"],), {}, r"algo=\['tis'\] is not a string"),
        ((3,), {}, "algo=3 is not a string"),
        (("tis",), {"track": 3}, "track=3 is not a string"),
        (("tis",), {"track": None}, "track=None is not a string"),
        (("tis",), {"progress": 3}, "progress=3 is not a function"),
    ],
)
def test_an_argument_of_a_benchmark_of_another_type_is_refused(
    words: tuple[Any, ...], options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staleharness.running.benchmark_runs.execute_plan", raising(AssertionError("it was started")))
    with pytest.raises(sh.UserError, match=said):
        sh.benchmark(*words, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", [None, 3, "", ["results"]])
def test_what_is_no_folder_is_not_loaded(folder: Any) -> None:
    with pytest.raises(sh.UserError, match=r"^folder="):
        sh.load(folder)


def test_numbers_of_numpy_are_numbers() -> None:
    def ask_plan(**words: Any) -> list[tuple[int, int]]:
        return [(run.spec.seed, run.spec.capacity) for run in sh.plan(env="Hopper", algo="spo", **words).runs]

    assert ask_plan(seeds=np.int64(2), k=np.int64(3)) == ask_plan(seeds=2, k=3) == [(0, 3), (1, 3)]
    assert ask_plan(seeds=np.arange(2), k=np.array([3])) == ask_plan(seeds=[np.int64(0), 1], k=3) == [(0, 3), (1, 3)]


@pytest.mark.parametrize("name", ["sweep", "benchmark"])
def test_what_trains_outside_the_main_thread_is_refused(name: str, tmp_path: Path) -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            if name == "sweep":
                sh.sweep(**ASKED, out=tmp_path / "out")
            else:
                sh.benchmark("tis[cap=3]", out=tmp_path / "out", quick=True)
        except BaseException as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert isinstance(seen[0], sh.UserError) and f"start a {name} from the main thread" in str(seen[0])
    assert not (tmp_path / "out").exists()


# --- running


@pytest.mark.long
def test_a_script_without_a_main_guard_runs_once_without_torch(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = swept
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 ['done', 'phase', 'started'] {1, 2} False\n" and done.stderr == ""
    assert (folder / "executed.txt").read_text() == "once\n"


def test_scripts_and_the_command_line_share_results(swept: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out = swept[0] / "out"
    words = f"sweep --env Pendulum --k 1,2 --algo spo --seeds 1 --steps 128 --set {TINY} --json --out".split()
    with without_report():
        typed = staleharness(*words, str(out))
    assert typed.returncode == 0, typed.stderr
    assert len(message(typed)["runs"]["skipped"]) == 2
    heard: list[dict[str, Any]] = []
    again = sh.sweep(**ASKED, k=2, algo="spo", seeds=1, out=out, progress=heard.append)
    assert [run.spec["capacity"] for run in again] == [2] and heard == []
    assert len(sh.load(out)) == 2
    with pytest.raises(sh.UserError, match="holds no results"):
        sh.load(swept[0])


def test_simulate_has_the_bits_of_a_stored_run_and_restores_torch(
    swept: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    (stored,) = [run for run in sh.load(swept[0] / "out") if run.spec["capacity"] == 2]
    frame = stored.metrics()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # other than a run's
    before = 2, torch.are_deterministic_algorithms_enabled()
    for phase in sh.simulate(env="Pendulum", k=2, algo="spo", steps=128, **SIZE):
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before
        row = frame.iloc[phase.metrics["phase"]]
        for key, value in phase.metrics.items():
            cell = row[key]
            assert list(cell) == value if isinstance(value, list) else (cell == value or pd.isna(cell)), key
    torch.set_num_threads(threads)
    assert phase.scores is not None and phase.metrics["phase"] == len(frame) - 1
    assert phase.scores.returns["sampled"] == stored.record["scores"]["sampled"]["returns"]


def test_the_data_of_each_phase_are_kept_on_request() -> None:
    phases = list(sh.simulate(env="Pendulum", k=3, algo="spo", steps=320, keep_data=True, **SIZE))
    assert len(phases) >= 5
    for phase in phases:
        rows = phase.data
        assert isinstance(rows, Rollout) and rows.obs.shape[:2] == rows.version.shape
        normal = torch.distributions.Normal(rows.behaviour_mean, rows.behaviour_log_std.exp())
        torch.testing.assert_close(rows.behaviour_logp, normal.log_prob(rows.action).sum(-1))
        lag = phase.metrics["phase"] - rows.version
        assert lag.flatten().bincount().tolist() == phase.metrics["lag_histogram"]
    observations = torch.cat([phase.data.obs[:, 0] for phase in phases])
    assert len(observations.unique(dim=0)) == len(observations), "no phase's data are overwritten by a later one's"
    (phase, *_) = sh.simulate(env="bit-chain", k=2, steps=4, horizon=4, batch=16, keep_data=True)
    assert isinstance(phase.data, Completions) and phase.data.token.shape[1] == 4
    assert next(sh.simulate(env="bit-chain", steps=4, horizon=4, batch=16)).data is None


def test_simulate_takes_the_minibatches_of_a_generation_round() -> None:
    updates = [list(sh.simulate(env="bit-chain", n=n, steps=4, horizon=4, batch=16)) for n in (1, 2)]
    assert [len(phases) for phases in updates] == [4, 2]


def test_a_simulation_takes_one_run_and_says_so_at_once() -> None:
    with pytest.raises(sh.UserError, match="these arguments give 2 runs"):
        sh.simulate(env="Pendulum", algo="spo,vaco")
    with pytest.raises(sh.UserError, match="simulate takes settings by name"):
        sh.simulate(env="Pendulum", settings={"epochs": 1})
    with pytest.raises(sh.UserError, match="did you mean 'epochs'"):
        sh.simulate(env="Pendulum", epoch=1)


def test_a_broken_plugin_stops_no_later_call(tmp_path: Path) -> None:
    plugin = tmp_path / "breaks.py"
    plugin.write_text("1 / 0")
    with loaded_plugins():
        with pytest.raises(sh.UserError, match=r"breaks\.py does not import: ZeroDivisionError"):
            sh.plan(**ASKED, algo="breaks", plugin=plugin)
        assert len(sh.plan(**ASKED, algo="ppo_clip", seeds=1).runs) == 1
        plugin.write_text(BREAKS)
        assert len(sh.plan(**ASKED, algo="breaks", seeds=1, plugin=plugin).runs) == 1
        assert len(sh.plan(**ASKED, algo="breaks", seeds=1).runs) == 1


def test_a_plugin_file_may_be_renamed_or_deleted(tmp_path: Path) -> None:
    plugin, other = tmp_path / "breaks.py", tmp_path / "other_name.py"
    plugin.write_text(BREAKS)
    asked: dict[str, Any] = {**ASKED, "algo": "breaks", "seeds": 1}
    with loaded_plugins():
        runs = sh.plan(**asked, plugin=plugin).runs
        plugin.rename(other)
        assert [run.run_id for run in sh.plan(**asked, plugin=other).runs] == [run.run_id for run in runs]
        other.unlink()
        with pytest.raises(sh.UserError, match="no algorithm is called 'breaks'"):
            sh.plan(**asked)
        other.write_text(BREAKS)
        assert len(sh.plan(**asked, plugin=other).runs) == 1


IDEA = """
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import PolicyLoss
{top}

@ALGORITHMS.register("idea")
@dataclass(frozen=True)
class Idea(Algorithm):
    \"\"\"A loss that is edited.\"\"\"
    paper = "none"
    {option}

    def policy_loss(self, d):
        return PolicyLoss({factor} * d.target_logp * d.advantage)
"""


def test_an_edited_plugin_is_read_again(tmp_path: Path) -> None:
    plugin, helper = tmp_path / "idea.py", tmp_path / "its_helper.py"
    asked: dict[str, Any] = {"env": "Pendulum", "algo": "idea", "steps": 64, **SIZE}

    def write(factor: str, option: str = "", top: str = "") -> tuple[str, float]:
        plugin.write_text(IDEA.format(factor=factor, option=option, top=top))
        (run,) = sh.plan(env="Pendulum", algo="idea", seeds=1, steps=64, settings=SIZE, plugin=plugin).runs
        (record,) = sh.simulate(**asked)
        return run.run_id, record.metrics["policy_loss"]

    with loaded_plugins():
        first_id, first = write("-1.0")
        second_id, second = write("2.0")
        assert first_id != second_id and second == pytest.approx(-2 * first, rel=0.2)
        _, with_option = write("self.scale", option="scale: float = -3.0")
        assert with_option == pytest.approx(3 * first, rel=0.2)
        assert sh.plan(env="Pendulum", algo="idea[scale=0.5]", seeds=1).runs[0].spec.hyper["scale"] == 0.5
        helper.write_text("FACTOR = 5.0")
        imported = "import sys; sys.path.insert(0, str(__import__('pathlib').Path(__file__).parent))\n"
        imported += "from its_helper import FACTOR"
        _, fifth = write("FACTOR", top=imported)
        helper.write_text("FACTOR = -7.0")
        _, seventh = write("FACTOR", top=imported)
        assert (fifth, seventh) == (pytest.approx(-5 * first, rel=0.2), pytest.approx(7 * first, rel=0.2))
    sys.path.remove(str(tmp_path))
    sys.modules.pop("its_helper")


def test_a_method_outside_of_a_file_of_its_own_is_refused(tmp_path: Path) -> None:
    idea = IDEA.format(factor="-1.0", option="", top="import staleharness as sh")
    call = f"sh.sweep(env='Pendulum', algo='idea', seeds=1, steps=64, settings={SIZE!r})"
    done = program(f"{idea}\n{call}", tmp_path)
    assert done.stderr.strip().endswith(
        "UserError: ALGO=idea is defined in the script itself, which workers do not execute; write it to one of its "
        "own (in a notebook %%writefile my_idea.py) and give plugin='my_idea.py'"
    )
    cell = f"import sys; del sys.modules['__main__'].__file__; exec(compile({idea!r}, '<cell>', 'exec'))"
    done = program(cell, tmp_path)
    assert "UserError: Idea is defined in no file, which workers need; write it to one of its own" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_run_that_fails_is_never_silently_missing(tmp_path: Path) -> None:
    plugin, out = tmp_path / "breaks.py", tmp_path / "out"
    plugin.write_text(BREAKS)
    with loaded_plugins(), pytest.raises(sh.RunsFailed) as caught:
        sh.sweep(**ASKED, k=2, algo="breaks,spo", seeds=1, out=out, plugin=str(plugin))
    assert str(caught.value) == (
        "1 of the runs failed; the others are stored; breaks Pendulum-v1 K=2 seed 0: ValueError: broken on purpose "
        "(breaks.py, line 13; phase 0)"
    )
    (failure,) = caught.value.failed.values()
    assert failure["class"] == "ValueError" and "broken on purpose" in failure["log_tail"]
    assert [run.record["label"] for run in caught.value.results] == ["spo"]
