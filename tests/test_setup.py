"""`make setup`: which Python and which torch, what the next call makes of a failed one, and folders it leaves alone.

Nothing is installed: a shell script stands in for Python, in a copy of what set-up reads of the checkout.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

PIN = "2.13.0"
PYTHON = """#!/bin/sh
case "$*" in
  "-m venv --clear "*) rm -rf "$4"; mkdir -p "$4/bin"; touch "$4/pyvenv.cfg"; cp "$0" "$4/bin/python" ;;
  "-m pip index versions torch --extra-index-url "*" --retries=1 --timeout=15") cat "$WORLD/index_of_torch" ;;
  "-m pip index versions torch") cat "$WORLD/index" ;;
  "-m pip install"*) echo "$*" >> "$WORLD/installed"; if [ -e "$WORLD/broken" ]; then exit 1; fi ;;
  *metadata*) cat "$WORLD/torch" ;;
  *) echo "VERSION /base/VERSION" ;;
esac
"""


class Machine:
    """Pythons 3.11 (which is `python3`) to 3.13 on the PATH, without an NVIDIA driver, and a checkout."""

    def __init__(self, folder: Path) -> None:
        self.world, self.checkout = folder / "world", folder / "checkout"
        self.venv = self.checkout / ".venv"
        self.world.mkdir()
        shutil.copytree(ROOT / "constraints", self.checkout / "constraints")
        shutil.copy(ROOT / "pyproject.toml", self.checkout)
        for name, version in (("python3", "3.11"), *((f"python3.{n}", f"3.{n}") for n in (11, 12, 13))):
            self.program(name, PYTHON.replace("VERSION", version))
        self.program("nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.write(index=f"Available versions: 2.15.0, {PIN}+cpu, {PIN}, 2.12.0")

    def program(self, name: str, text: str) -> Path:
        path = self.world / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def write(self, index: str = "", index_of_torch: str = "", torch: str = "") -> None:
        """Write the offers of pip's index and of torch's index, and the installed packages."""
        for name, text in {"index": index, "index_of_torch": index_of_torch, "torch": torch}.items():
            (self.world / name).write_text(text)

    @property
    def pip_calls(self) -> list[str]:
        return (self.world / "installed").read_text().splitlines()

    @property
    def stamp(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.venv / "staleharness-setup.json").read_text())
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "WORLD": str(self.world), "PATH": f"{self.world}{os.pathsep}{os.environ['PATH']}"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.checkout / "constraints" / "install.py"), *arguments]

    def install(self, *arguments: str, code: int = 0) -> str:
        """Standard error of a set-up; nothing may be on standard output."""
        where: Any = {"cwd": self.checkout, "env": self.environment}
        done = subprocess.run(self.command(*arguments), **where, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        return done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_another_python_replaces_the_first_and_choices_last(machine: Machine) -> None:
    machine.install("--extras", "ray")
    assert (machine.stamp["python"], machine.stamp["extras"]) == ("py311", "ray")
    assert "making" in machine.install("--py", "python3.12")
    assert (machine.stamp["python"], machine.stamp["extras"]) == ("py312", "ray")
    for again in ((), ("--py", "python3.12")):
        assert "up to date" in machine.install(*again)
    assert machine.stamp["python"] == "py312"


def test_make_hands_the_python_that_is_asked_for_to_the_script(machine: Machine) -> None:
    machine.program("python3", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    clean = {name: value for name, value in machine.environment.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-C", ROOT, "setup", "PY=python3.12", f"VENV={machine.venv}"]
    shown = subprocess.run([*command, "-n"], env=clean, capture_output=True, text=True, check=True).stdout
    assert "constraints/install.py" in shown and "--py=" in shown
    said = subprocess.run(command, env=clean, capture_output=True, text=True, check=True).stderr
    assert said.splitlines() == ["constraints/install.py", f"--venv={machine.venv}", "--py=python3.12"]


def test_a_failed_set_up_does_not_decide_the_python_of_the_next(machine: Machine) -> None:
    (machine.world / "broken").touch()
    machine.install("--py", "python3.13", code=2)
    machine.write()  # a set-up that fails even earlier, before pip is called
    machine.install("--py", "python3.12", code=2)
    (machine.world / "broken").unlink()
    machine.write(index=f"{PIN}+cpu")
    assert "making" in machine.install()
    assert machine.stamp["python"] == "py311"


def test_a_failed_setup_changes_no_choice_and_can_be_finished(machine: Machine) -> None:
    machine.install("--py", "python3.12", "--extras", "ray")
    (machine.world / "broken").touch()
    machine.install("--extras", "wandb", "--torch", "cuda", code=2)
    assert not (machine.venv / "staleharness-setup.json").exists()
    (machine.world / "broken").unlink()
    assert "making" not in machine.install()
    assert {key: machine.stamp[key] for key in ("python", "extras", "torch")} == {
        "python": "py312",
        "extras": "ray",
        "torch": "auto",
    }


def test_an_environment_of_the_user_s_own_is_not_made_anew(machine: Machine) -> None:
    subprocess.run(
        [machine.world / "python3.12", "-m", "venv", "--clear", machine.venv], check=True, env=machine.environment
    )
    said = machine.install("--py", "python3.11", code=2)
    assert said.count("\n") == 1 and "has Python 3.12" in said and f"rm -r {machine.venv}" in said
    assert "making" not in machine.install()
    assert machine.stamp["python"] == "py312"


def test_torch_comes_from_where_a_cpu_build_is(machine: Machine) -> None:
    machine.install()
    assert f"--no-deps torch=={PIN}+cpu" in machine.pip_calls[0] and "index-url" not in machine.pip_calls[0]
    machine.write(index=PIN, index_of_torch=f"{PIN}+cpu, {PIN}")
    machine.install("--extras", "ray")
    assert "extra-index-url" in machine.pip_calls[2] and f"torch=={PIN}+cpu" in machine.pip_calls[2]
    machine.write(torch=f"{PIN}+cpu")  # no index answers, and none has to
    machine.install("--extras", "llm")
    assert "torch=" not in machine.pip_calls[4] and len(machine.pip_calls) == 5


def test_without_a_cpu_build_the_plain_one_is_installed(machine: Machine) -> None:
    machine.write(index=f"2.14.0, {PIN}")
    said = machine.install()
    for words in (f"no CPU build of torch {PIN}", "taking the plain build", "GB", "TORCH=cpu"):
        assert words in said
    assert f"torch==={PIN}" in machine.pip_calls[0] and "index-url" not in machine.pip_calls[0]


def test_who_asks_for_the_cpu_build_gets_no_other(machine: Machine) -> None:
    machine.write(index=PIN)
    said = machine.install("--torch", "cpu", code=2).splitlines()[-1]
    assert "TORCH=cuda takes the plain build" in said
    assert not (machine.world / "installed").exists()
    machine.install("--torch", "cuda")
    assert f"torch==={PIN}" in machine.pip_calls[0]


def test_without_any_torch_in_reach_the_network_is_the_reason(machine: Machine) -> None:
    machine.write()
    assert "is there a network?" in machine.install(code=2).splitlines()[-1]


def test_a_second_set_up_says_that_it_waits(machine: Machine) -> None:
    with (machine.checkout / "pyproject.toml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = subprocess.Popen(machine.command(), env=machine.environment, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert "waiting for it to end" in waiting.stderr.readline()
        assert not machine.venv.exists()
        wheel = ["--venv", str(machine.world / "venv"), "--wheel", "it.whl"]  # touches nothing of the checkout
        assert "waiting" not in machine.install(*wheel)
    assert "done in" in waiting.communicate()[1]
    assert waiting.returncode == 0


def test_a_folder_that_is_no_environment_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").touch()
    for arguments in ([], ["--remove"]):
        assert str(tmp_path / "mine") in machine.install("--venv", str(tmp_path / "mine"), *arguments, code=2)
    assert (tmp_path / "mine" / "precious.txt").exists()


def test_the_environment_of_another_checkout_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "bin").mkdir(parents=True)
    (theirs / "pyvenv.cfg").touch()
    (theirs / "staleharness-setup.json").write_text(json.dumps({"root": "/another/checkout"}))
    link = tmp_path / "link"
    link.symlink_to(theirs)
    for venv in (theirs, link):
        said = machine.install("--venv", str(venv), code=2)
        assert said.count("\n") == 1
        assert f"VENV={venv} is the environment of another checkout, /another/checkout" in said
    assert (theirs / "bin").exists() and (theirs / "staleharness-setup.json").exists()


def test_the_pythons_that_will_do_are_named(machine: Machine) -> None:
    said = machine.install("--py", "/no/python2.4", code=2)
    assert "3.11, 3.12 or 3.13" in said and said.count("\n") == 1


def test_the_package_that_debian_leaves_out_is_named(machine: Machine) -> None:
    text = "#!/bin/sh\necho 3.12 /usr\necho 'No module named ensurepip' >&2\nexit 1\n"
    fake = machine.program("python3.12-without-venv", text)
    assert "sudo apt-get install python3.12-venv" in machine.install("--py", str(fake), code=2)
