"""Known vulnerabilities in what `make setup` installs, every extra included: `make audit`.

pip-audit, in an environment that is thrown away, looks every pin of constraints/ up in PyPI's database of advisories
and installs none of them. That needs pypi.org itself: an index that is mirrored holds no advisories, so this is no
part of `.ci/run`, which has to work without a network.

Exit codes: 0 nothing is known, 1 something is, 2 it could not be looked up, which one line says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def pins() -> list[str]:
    """`name==version`, of all Pythons."""
    files = sorted((ROOT / "constraints").glob("py3*.txt"))
    lines = {line for file in files for line in file.read_text(encoding="utf-8").splitlines()}
    return sorted(line for line in lines if line and not line.startswith("#"))


def judge(dependencies: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit code and what to say, of what pip-audit says of each pin."""
    skipped = [d for d in dependencies if "skip_reason" in d]
    said = [
        f"{d['name']} {d['version']}: {v['id']}, mended in {', '.join(v['fix_versions']) or 'no version'}"
        for d in dependencies
        for v in d.get("vulns", [])
    ]
    known = len(dependencies) - len(skipped)
    if said:
        return 1, said
    if not known:
        return 2, ["no pin could be looked up: there is no advisory database within reach"]
    unknown = f"; not looked up: {', '.join(sorted(d['name'] for d in skipped))}" if skipped else ""
    return 0, [f"{known} of {len(dependencies)} pins looked up, no vulnerability is known{unknown}"]


class LookupFailure(Exception):
    """pip-audit could not be installed or gave no answer; the message is one line."""


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1][:300]


def look_up(folder: Path) -> list[dict[str, Any]]:
    """Entries of pip-audit, one per pin. Raises `LookupFailure`."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit>=2.9"]
    installation = subprocess.run(pip, capture_output=True, text=True)
    if installation.returncode:
        raise LookupFailure(f"pip-audit could not be installed: {last_line(installation.stderr)}")
    found: list[dict[str, Any]] = []
    for group in _without_repeats(pins()):
        wanted = folder / "pins.txt"
        wanted.write_text("\n".join(group) + "\n")
        words = ["--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", "-r", str(wanted)]
        done = subprocess.run([str(python), "-m", "pip_audit", *words], capture_output=True, text=True)
        try:
            found += json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            raise LookupFailure(f"pip-audit gave no answer: {last_line(done.stderr)}") from None
    return found


def _without_repeats(lines: list[str]) -> list[list[str]]:
    """The pins in groups that name no package twice, as Pythons may be pinned to different versions."""
    groups: list[dict[str, str]] = []
    for line in lines:
        name = line.partition("==")[0]
        free = next((group for group in groups if name not in group), None)
        if free is None:
            groups.append(free := {})
        free[name] = line
    return [list(group.values()) for group in groups]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            code, lines = judge(look_up(Path(folder)))
        except LookupFailure as error:
            code, lines = 2, [str(error)]
    print("\n".join(lines), file=sys.stderr if code == 2 else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
