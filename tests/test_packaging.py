"""Promises of a fresh clone: pins, make targets, and values that reach the program as they were typed."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from places import ROOT

from staleharness.base import reference_results
from staleharness.commands.advise import CONTROL, TOKENS
from staleharness.errors import UserError
from staleharness.pages.paper_gallery import publish
from staleharness.statistics.results import load
from staleharness.store.store import Store

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.11", "3.12", "3.13")
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
NAMES = re.findall(
    r"\w+",
    "ENV K ALGO SEEDS STEPS PRESET JOBS RUNNER RUNS_PER_GPU MEMORY SLURM DEVICE OUT LAG SET PLUGIN SPEC NORMALISE SCORE"
    " N MODEL DATA",
)

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


def pins(python: str) -> dict[str, str]:
    file = ROOT / "constraints" / f"py{python.replace('.', '')}.txt"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def make(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")  # of the `make test` that runs this
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    command = ["make", "-f", str(ROOT / "Makefile"), *arguments]
    return subprocess.run(command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True)


@pytest.fixture
def program(tmp_path):
    """Runs `make` with a stand-in for staleharness, as if set up; gives its argv and environment."""
    echo = tmp_path / "echo.py"
    echo.write_text(ECHO)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "staleharness-setup.json").touch()
    overrides = [f"STALEHARNESS={sys.executable} {echo}", f"VENV={tmp_path / 'venv'}"]

    def run(*arguments: str, **environment: str) -> tuple[list[str], dict[str, str]]:
        done = make(*overrides, *arguments, **environment)
        assert done.returncode == 0, done.stderr
        argv, environ = json.loads(done.stdout)  # nothing but the program's own output may be on stdout
        return argv, environ

    return run


@needs_make
def test_plain_make_lists_every_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split()
    listed = re.findall(r"^  make (\S+) ", make().stdout, re.MULTILINE)
    assert sorted(listed) == sorted(set(phony) - {"FORCE"})


@needs_make
@pytest.mark.parametrize("variable", ["ALGO=spo", "TRACK=tokens", "QUICK=1", "ADD=bundle"])
def test_make_bench_with_a_method_names_make_benchmark(tmp_path, variable):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "staleharness-setup.json").touch()
    done = make(f"VENV={tmp_path / 'venv'}", "bench", variable)
    method = "spo" if variable == "ALGO=spo" else "my_idea"
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(
        f"make bench measures speed; for the verdict on a method: make benchmark ALGO={method}\n"
    )


@needs_make
def test_the_fault_suite_runs_marked_tests_and_files_that_exist(tmp_path):
    lines = make("-n", "test-faults", f"VENV={tmp_path}").stdout.splitlines()
    marked, others = (line.split() for line in lines if " -m pytest " in line)
    assert marked[1:] == ["-m", "pytest", "-q", "-m", "faults"]
    files = [word for word in others if word.startswith("tests/")]
    assert len(files) == len(set(files)) > 15 and [file for file in files if not (ROOT / file).is_file()] == []


def test_the_ci_script_runs_in_the_bash_of_macos():
    """Bash 3.2, without what came with 4.0 and later."""
    newer = r"\b(?:mapfile|readarray|coproc|wait -n|(?:declare|local) -[Angl])\b|\$\{\w+[,^]|\|&|&>>"
    assert re.findall(newer, (ROOT / ".ci/run").read_text(encoding="utf-8")) == []


@needs_make
def test_a_make_variable_is_the_flag_of_the_same_name(program):
    assert program("sweep", "ENV=Hopper", "K=8")[0] == ["sweep", "--env=Hopper", "--k=8"]
    argv, _ = program("sweep", *(f"{name}={name.title()}" for name in NAMES))
    assert argv == ["sweep", *(f"--{name.lower().replace('_', '-')}={name.title()}" for name in NAMES)]


@needs_make
def test_paper_figure_and_scale_are_flags_of_both_commands(program):
    given = ["PAPER=vaco", "FIG=3", "SCALE=paper"]
    assert program("figures", *given)[0] == ["figures", "--paper=vaco", "--fig=3", "--scale=paper"]
    argv, _ = program("reproduce", *given, "JOBS=2", "DRY=1")
    assert argv == ["reproduce", "--paper=vaco", "--fig=3", "--scale=paper", "--jobs=2", "--dry"]


@needs_make
def test_a_variable_that_is_not_set_passes_no_flag(program):
    assert program("sweep")[0] == ["sweep"]
    assert program("list", "JSON=1")[0] == ["list", "--json"]


@needs_make
@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["sweep", "ENV=Hopper", "SCALE=paper"], "make sweep takes no SCALE; it takes ENV K ALGO SEEDS"),
        (["sweep", "K=8", "ENVS=Hopper"], "make sweep takes no ENVS; it takes ENV K ALGO SEEDS"),
        (["compare", "A=x", "SEED=1"], "make compare takes no SEED; it takes A B ENV K"),
        (["unpack", "A=x", "RUNS_PER_GPU=2"], "make unpack takes no RUNS_PER_GPU; it takes A OUT"),
        (["sweep", "K=8", "DRY_RUN=1"], "make sweep takes no DRY_RUN; it takes ENV K ALGO SEEDS"),
        (["sweep", "K=8", "RUN_PER_GPU=2"], "make sweep takes no RUN_PER_GPU; it takes ENV K ALGO SEEDS"),
    ],
)
def test_a_variable_that_a_target_does_not_take_is_refused(program, arguments, refusal):
    done = make("-n", *arguments)
    assert done.returncode == 2 and refusal in done.stderr.splitlines()[0]
    assert program(*arguments[:2], "OMP_NUM_THREADS=1", "TMPDIR=/tmp")[1]["OMP_NUM_THREADS"] == "1"


@needs_make
@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["setup", "EXTRA=llm"], "make setup takes no EXTRA; it takes PY TORCH EXTRAS"),
        (["test", "ARG=-k lag"], "make test takes no ARG; it takes ARGS"),
        (["golden", "WRITE=1"], "make golden takes no WRITE; it takes ARGS"),
        (["status", "report", "KS=8"], "make status takes no KS; it takes OUT JSON"),
    ],
)
def test_a_misspelt_variable_of_setup_and_tests_is_refused(arguments, refusal, tmp_path):
    (tmp_path / "staleharness-setup.json").touch()
    done = make("-n", f"VENV={tmp_path}", *arguments)
    assert done.returncode == 2 and refusal in done.stderr


@needs_make
def test_reports_and_exports_take_plugins(program):
    assert program("report", "PLUGIN=a.py")[0] == ["report", "--plugin=a.py"]
    assert program("export", "PLUGIN=a.py")[0] == ["export", "csv", "--plugin=a.py"]


@needs_make
def test_several_targets_take_what_is_their_own():
    lines = make("-n", "STALEHARNESS=x", "status", "report", "OUT=r", "K=8").stdout.splitlines()
    assert 'exec x status --out="$ARG_OUT"' in map(str.strip, lines)
    assert 'exec x report --out="$ARG_OUT" --k="$ARG_K"' in map(str.strip, lines)


@needs_make
@pytest.mark.parametrize("off", ["0", "no", "off", "false", "False", "NO"])
def test_a_switch_is_on_unless_it_says_off(program, off):
    assert program("sweep", "DRY=1", "JSON=1")[0] == ["sweep", "--dry", "--json"]
    assert program("sweep", f"DRY={off}")[0] == ["sweep"]


@needs_make
@pytest.mark.parametrize(
    "value",
    [
        "vaco[delta=0.1]",
        "Hopper Walker2d,Ant",
        "-1",
        "",
        "$(touch pwned)",
        "$(shell touch pwned)",
        "${shell touch pwned}",
        "`touch pwned`",
        "; touch pwned",
        "'; touch pwned; '",
        '"; touch pwned; "',
        "a\ntouch pwned",
        "a \\",
        "#not a comment",
        "$HOME $$ $(HOME) %",
        "*",
        "--env=Ant",
        "ρ̄ = 1",
    ],
)
def test_any_value_reaches_the_program_as_it_was_typed(program, value, tmp_path):
    pwned = ROOT / "pwned"
    pwned.unlink(missing_ok=True)
    argv, _ = program("sweep", f"ALGO={value}", f"OUT={tmp_path}/{value}")
    assert not pwned.exists()
    assert argv == ["sweep", f"--algo={value}", f"--out={tmp_path}/{value}"]


@needs_make
def test_names_in_the_users_shell_do_not_leak_in(program):
    names = [*NAMES, *(f"ARG_{name}" for name in NAMES), "PAPER", "FIG", "SCALE", "DRY", "JSON", "ARGS"]
    names += ["A", "B", "TO", "ARG_A", "ARG_B", "ARG_TO"]
    names += ["VENV", "PY", "TORCH", "EXTRAS", "PYTHON", "STALEHARNESS"]
    shell = dict.fromkeys(names, "leaked")
    assert program("sweep", "K=4", **shell)[0] == ["sweep", "--k=4"]
    assert program("new", "NAME=x", **shell, ARG_KIND="leaked")[0] == ["new", "algorithm", "x"]


@needs_make
def test_other_variables_of_the_users_shell_reach_the_program(program):
    assert program("sweep", STALEHARNESS_PLUGINS="/x", MUJOCO_GL="egl")[1].items() >= {
        ("STALEHARNESS_PLUGINS", "/x"),
        ("MUJOCO_GL", "egl"),
    }


@needs_make
def test_new_passes_kind_and_name_by_position(program):
    assert program("new", "NAME=my idea")[0] == ["new", "algorithm", "my idea"]
    assert program("new", "KIND=env", "NAME=x", "FOLDER=/a b")[0] == ["new", "env", "x", "--folder=/a b"]


@needs_make
def test_compare_takes_its_two_folders_by_position(program):
    assert program("compare", "A=my bundle")[0] == ["compare", "my bundle", "results"]
    argv, _ = program("compare", "A=x", "B=$(y)", "K=8", "OUT=c.csv", A="leaked", ARG_B="leaked")
    assert argv == ["compare", "x", "$(y)", "--k=8", "--out=c.csv"]
    assert program("compare", ARG_A="leaked")[0] == ["compare", "", "results"]


@needs_make
def test_export_takes_its_kind_by_position(program):
    assert program("export")[0] == ["export", "csv"]
    argv, _ = program("export", "KIND=wandb", "TO=a b", "OUT=r")
    assert argv == ["export", "wandb", "--out=r", "--to=a b"]


@needs_make
@pytest.mark.parametrize("switch", ["DRY", "LIST", "PROBE", "JSON", "RESTART"])
def test_an_empty_switch_is_refused(switch):
    """`DRY=$UNSET` must not train."""
    done = make("-n", "reproduce", "PAPER=vaco", f"{switch}=")
    assert done.returncode == 2 and done.stdout == ""
    assert f"{switch}= is empty; give {switch}=1, or leave it out" in done.stderr


def test_a_failing_program_fails_make_and_its_line_comes_first(tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "staleharness-setup.json").touch()
    fail = tmp_path / "fail.py"
    fail.write_text("import sys; sys.exit('no env is called Hoper')")
    done = make(f"STALEHARNESS={sys.executable} {fail}", f"VENV={tmp_path / 'venv'}", "sweep", "ENV=Hoper")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "no env is called Hoper" and len(done.stderr.splitlines()) == 2


@needs_make
def test_clean_leaves_results_alone(tmp_path):
    for name in ("results/keep", "build/gone", "staleharness/__pycache__/gone"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert make("clean", cwd=tmp_path).returncode == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["keep"]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_versions_that_move_results_are_pinned(python):
    assert pins(python).items() >= {("torch", "2.13.0"), ("mujoco", "3.17.0")}
    assert Version(pins(python)["pandas"]) < Version("3")


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_a_pin_within_its_range(python):
    project = PYPROJECT["project"]
    requirements = [*project["dependencies"], *PYPROJECT["build-system"]["requires"]]
    requirements += [item for extra in project["optional-dependencies"].values() for item in extra]
    others = [r for r in map(Requirement, requirements) if r.name != "staleharness"]  # an extra may hold another
    for requirement in others:
        pinned = pins(python)[requirement.name.lower()]
        assert requirement.specifier.contains(pinned), f"{requirement} but {pinned} in constraints"


def test_the_pythons_of_pyproject_are_those_with_pins():
    files = {path.name for path in (ROOT / "constraints").glob("py*.txt")}
    assert files == {f"py{python.replace('.', '')}.txt" for python in PYTHONS}
    allowed = Requirement(f"x{PYPROJECT['project']['requires-python']}").specifier
    assert [minor for minor in range(8, 20) if allowed.contains(f"3.{minor}")] == [11, 12, 13]


def test_plugin_folders_are_not_packages():
    assert not [folder for folder in ("algorithms", "envs") if (ROOT / folder / "__init__.py").exists()]


def test_the_citation_names_the_version_that_is_installed():
    import staleharness

    assert f"\nversion: {staleharness.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@needs_make
@pytest.mark.parametrize(
    ("target", "extra"),
    [
        (["sweep", "ENV=gsm8k", "DEVICE=cuda"], "llm"),
        (["sweep", "SPEC=experiments/a3po_language.toml"], "llm"),
        (["sweep", "ENV=word-problems", "MODEL=smollm2"], "smollm2"),
        (["sweep", "ENV=gsm8k", "PRESET=smollm2_gsm8k"], "smollm2"),
        (["sweep", "SPEC=experiments/smollm2_lag.toml"], "smollm2"),
        (["sweep", "ENV=Hopper"], ""),
        (["reproduce", "PAPER=a3po"], "llm"),
        (["benchmark", "ALGO=spo"], "llm"),
        (["benchmark", "ALGO=spo", "TRACK=control", "RUNNER=ray"], "ray"),
        (["benchmark", "ALGO=spo", "TRACK=control"], ""),
        (["export", "KIND=wandb"], "wandb"),
        (["export", "KIND=csv"], ""),
    ],
)
def test_a_target_installs_its_extra_and_a_dry_run_none(target, extra):
    said = make("-n", *target).stdout
    assert (f"--also={extra}" in said) if extra else ("--also" not in said)
    if target[0] != "export":
        assert "--also" not in make("-n", *target, "DRY=1").stdout


@needs_make
@pytest.mark.parametrize(
    ("shell", "arguments", "extra"),
    [
        ({"ENV": "word-problems"}, [], ""),
        ({"SPEC": "experiments/smollm2_lag.toml"}, [], ""),
        ({"MODEL": "smollm2"}, ["ENV=word-problems"], "llm"),
        ({"PRESET": "smollm2_gsm8k"}, ["ENV=gsm8k"], "llm"),
    ],
)
def test_a_name_in_the_users_shell_installs_no_extra(shell, arguments, extra):
    said = make("-n", "sweep", "K=1", *arguments, **shell).stdout
    assert re.findall(r"--also=(\w+)", said) == ([extra] if extra else [])


@needs_make
@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("a b", "VENV=a b has a blank in it; name a folder without one"),
        ("a ", "VENV=a  has a blank in it; name a folder without one"),
        ("", "VENV= is empty; name a folder, or leave it out"),
    ],
)
@pytest.mark.parametrize("target", ["status", "setup", "distclean"])
def test_an_environment_folder_with_a_blank_is_refused(target, folder, problem):
    done = make("-n", target, f"VENV={folder}")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "") and line.endswith(f"*** {problem}.  Stop.")


@needs_make
@pytest.mark.parametrize(("extras", "is_there"), [("", False), ("ray", False), ("llm", True), ("docs,smollm2", True)])
def test_an_extra_is_looked_up_among_extras_alone(tmp_path, extras, is_there):
    """The stamp also names the folder of the checkout."""
    (tmp_path / "venv").mkdir()
    stamp = {"extras": extras, "root": "/srv/llm/staleharness"}
    (tmp_path / "venv" / "staleharness-setup.json").write_text(json.dumps(stamp))
    values = "STALEHARNESS=true", f"VENV={tmp_path / 'venv'}", "ENV=word-problems"
    done = make("-e", "sweep", *values, INSTALL="echo install")
    assert done.returncode == 0 and ("install --also=llm" in done.stdout) is not is_there


def test_uv_is_given_the_pins_that_change_training_curves() -> None:
    asked = dict(pin.split("==") for pin in PYPROJECT["tool"]["uv"]["constraint-dependencies"])
    assert asked.keys() == {"torch", "mujoco"}
    for python in PYTHONS:
        assert asked.items() <= pins(python).items()


def test_uv_takes_torch_for_the_cpu_from_where_setup_takes_it() -> None:
    (source,) = PYPROJECT["tool"]["uv"]["sources"]["torch"]
    (index,) = PYPROJECT["tool"]["uv"]["index"]
    assert source["index"] == index["name"] and source["marker"] == "sys_platform == 'linux'"
    assert index["explicit"] and index["url"] == runpy.run_path(str(ROOT / "constraints/install.py"))["TORCH_CPU_INDEX"]


@needs_make
def test_nightly_jobs_test_without_pins_and_under_faults() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    job, _, faults = workflow.partition("\n  newest:")[2].partition("\n  audit:")[0].partition("\n  faults:")
    assert "schedule:\n    - cron:" in workflow and "github.event_name == 'schedule'" in job
    assert "--upgrade" in job and "pytest" in job and "constraints" not in job and "make" not in job
    assert "github.event_name == 'schedule'" in faults and "make test-faults EXTRAS=llm" in faults


def test_the_list_of_targets_fits_80_columns() -> None:
    lines = make("help").stdout.splitlines()
    assert max(map(len, lines)) <= 80 and any(line.startswith("  make sweep ") for line in lines)


def test_the_wheel_has_at_most_eight_megabytes(tmp_path: Path) -> None:
    """Compressed as a wheel is, from the files that git would give to its build."""
    parts = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    files = [
        file
        for part in parts
        for file in ([ROOT / part] if (ROOT / part).is_file() else (ROOT / part).rglob("*"))
        if file.is_file() and not {"__pycache__", "reports"} & set(file.parts)
    ]
    with zipfile.ZipFile(tmp_path / "wheel", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.relative_to(ROOT))
    assert 5e6 < (tmp_path / "wheel").stat().st_size < 8e6
    bundles = {part.removeprefix("results/reference/") for part in parts if part.startswith("results/reference/")}
    assert {Path(TOKENS).name, Path(CONTROL).name, "quick_hopper"} <= bundles, "what commands ask by themselves"


def test_an_installation_without_a_bundle_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "reference"
    shutil.copytree(ROOT / "results" / "reference" / "quick_hopper", inside / "quick_hopper")
    assert reference_results.absent_results() == ""
    monkeypatch.setattr(reference_results, "builtin_folder", lambda kind: tmp_path / kind)
    monkeypatch.chdir(tmp_path)
    words = r"only the published runs of quick_hopper; copy others from a checkout of the repository to "
    words += "results/reference/"
    assert len(load("results/reference/quick_hopper")) > 0
    for call in (
        lambda: load("results/reference/vaco_ratio"),
        lambda: Store("results/reference/vaco_ratio").check_readable(),
        lambda: publish("vaco", "3", "small", str(inside), str(tmp_path / "gallery")),
    ):
        with pytest.raises(UserError, match=words):
            call()
    shutil.copytree(inside / "quick_hopper", tmp_path / "results" / "reference" / "mine")
    assert len(load("results/reference/mine")) > 0
