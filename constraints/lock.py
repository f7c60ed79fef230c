"""Resolve every dependency and extra of pyproject.toml and write the exact pins for the running Python.

`make lock`, or `/path/to/python3.12 constraints/lock.py` for another Python (it needs pip; installs nothing).
pip resolves against a stand-in for torch, which asks for what torch asks for apart from the CUDA libraries:
so the pins are the same on every machine, and gigabytes need not be fetched to read a list of names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Chosen by hand: these two change training curves, so results of different times stay comparable.
CHOSEN = {"torch": "2.13.0", "mujoco": "3.17.0"}
# What torch 2.13.0 requires everywhere.
TORCH_REQUIRES = [
    "filelock",
    "typing-extensions>=4.10.0",
    "setuptools>=77.0.3",
    "sympy>=1.13.3",
    "networkx>=2.5.1",
    "jinja2",
    "fsspec>=0.8.5",
]


def stand_in_for_torch(folder: Path) -> None:
    """A wheel called torch with metadata and nothing else; its local version sorts above the true one."""
    version = CHOSEN["torch"] + "+lock"
    info = f"torch-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in TORCH_REQUIRES]
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def resolve() -> dict[str, str]:
    """Name to version of everything that a full installation with all extras holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *(item for extra in extras.values() for item in extra)]
    wanted = [item for item in wanted if not item.startswith("staleharness")]  # an extra that holds another
    wanted += project["build-system"]["requires"]
    wanted += [f"{name}=={version}" for name, version in CHOSEN.items()]
    with tempfile.TemporaryDirectory() as folder:
        stand_in_for_torch(Path(folder))
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--find-links", folder, "--report", str(report), *wanted], check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {item["metadata"]["name"]: item["metadata"]["version"] for item in installed}
    return {re.sub(r"[-_.]+", "-", name).lower(): version.split("+")[0] for name, version in found.items()}


def main() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pins = resolve()
    target = ROOT / "constraints" / f"py{python.replace('.', '')}.txt"
    head = f"# Python {python}: what `make setup` installs, extras included. Made by `make lock`.\n"
    target.write_text(head + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins)), encoding="utf-8")
    print(f"{target.relative_to(ROOT)}: {len(pins)} pins")


if __name__ == "__main__":
    main()
