"""`staleharness list`: what can be run, as plain data and as text. Loads plugin files, not torch."""

from __future__ import annotations

from typing import Any

from .algorithm import ALGORITHMS
from .plugins import source_file, summary
from .task import all_families


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """{"algorithms": [...], "envs": [...]}, each entry {name, summary, paper, hyper-parameters, file, ...}."""
    algorithms = [
        {
            "name": name,
            "summary": summary(ALGORITHMS[name]),
            "paper": ALGORITHMS[name].paper,
            "hyper_parameters": ALGORITHMS[name].hyper_parameters(),
            "file": source_file(ALGORITHMS[name]),
        }
        for name in ALGORITHMS
    ]
    envs = [
        {
            "name": env,
            "summary": line,
            "paper": family.paper,
            "hyper_parameters": {},
            "file": source_file(family),
            "family": family.name,
            "aliases": sorted(alias for alias, target in family.aliases.items() if target == env),
        }
        for family in all_families()
        for env, line in (family.ids or {f"<{family.name}>": summary(family)}).items()
    ]
    return {"algorithms": algorithms, "envs": envs}


def as_text(content: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["algorithms (ALGO=name or name[option=value,...])"]
    for entry in content["algorithms"]:
        lines += ["", f"  {entry['name']}: {entry['summary']}"]
        options = ", ".join(f"{key}={_shown(value)}" for key, value in entry["hyper_parameters"].items())
        for what, value in (("paper", entry["paper"]), ("options", options), ("file", entry["file"])):
            if value:
                lines.append(f"      {what + ':':9}{value}")
    lines += ["", "environments (ENV=name)", ""]
    width = max(len(entry["name"]) for entry in content["envs"])
    for entry in content["envs"]:
        alias = f" (or {', '.join(entry['aliases'])})" if entry["aliases"] else ""
        lines.append(f"  {entry['name']:{width}}  {entry['summary']}{alias}")
    lines += [""] + [f"  file: {file}" for file in dict.fromkeys(entry["file"] for entry in content["envs"])]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
