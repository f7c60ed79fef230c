"""Catalogue of algorithms, environments and lag models (`staleharness list`). Loads plugin files, not torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..algorithm import ALGORITHMS, Algorithm
from ..base.parsing import format_value
from ..base.plugins import source_file, summary
from ..lag import DRAWN, LAGS, LagModel
from ..mismatch import MISMATCHES, Mismatch
from ..task import ENVS, all_families
from ..training.method_descriptions import OTHER, entry_of, extra_passes, families
from .methods_and_environments import is_core


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Return {"algorithms", "envs", "lags", "mismatches"}: entries {name, summary, paper, hyper-parameters, file,
    ...}."""
    algorithms = [_algorithm(ALGORITHMS[name]) for name in ALGORITHMS]
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
    lags = [_lag(LAGS[name]) for name in LAGS]
    return {
        "algorithms": algorithms,
        "envs": envs,
        "lags": sorted(lags, key=lambda entry: (entry["family"] != DRAWN, entry["family"], entry["name"])),
        "mismatches": [_plugin(cls) | {"usage": cls.usage()} for cls in map(MISMATCHES.__getitem__, MISMATCHES)],
    }


def _plugin(cls: type[Algorithm] | type[LagModel] | type[Mismatch]) -> dict[str, Any]:
    return {
        "name": cls.name,
        "summary": summary(cls),
        "paper": cls.paper,
        "hyper_parameters": cls.hyper_parameters(),
        "file": source_file(cls),
    }


def _lag(cls: type[LagModel]) -> dict[str, Any]:
    """Describe a lag model; a required option has the default None."""
    options = dict.fromkeys(cls.hyper_parameter_types()) | cls.hyper_parameters()
    return _plugin(cls) | {"hyper_parameters": options, "family": cls.listed_under(), "usage": cls.usage()}


def _algorithm(cls: type[Algorithm]) -> dict[str, Any]:
    entry = entry_of(cls)
    return _plugin(cls) | {
        "core": is_core(cls),
        "family": entry.family,
        "does": families(cls).get(entry.family, ""),
        "level": entry.level,
        "transform": entry.transform,
        "trust_region": entry.trust_region,
        "anchor": entry.anchor,
        "passes": str(extra_passes(cls())),
        "needs": sorted(cls.needs),
    }


def as_text(content: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "algorithms (ALGO=name or name[option=value,...]), by what becomes of a stale decision",
        "* runs in a sweep that names no algorithm; passes: over tokens, beyond those that any method needs",
    ]
    for family, does, members in _by_family(content["algorithms"]):
        lines += ["", f"{family}: {does}" if does else family]
        for entry in members:
            lines += ["", f"  {entry['name']}: {entry['summary']}{' *' if entry['core'] else ''}"]
            needs = ", ".join(entry["needs"])
            lines += _facts(entry, {"ratio": _ratio(entry), "passes": entry["passes"], "needs": needs})
    lines += ["", "environments (ENV=name)", ""]
    width = max(len(entry["name"]) for entry in content["envs"])
    for entry in content["envs"]:
        alias = f" (or {', '.join(entry['aliases'])})" if entry["aliases"] else ""
        lines.append(f"  {entry['name']:{width}}  {entry['summary']}{alias}")
    lines += [""] + [f"  file: {file}" for file in dict.fromkeys(entry["file"] for entry in content["envs"])]
    lines += [f"  broken: {line}" for registry in (ALGORITHMS, ENVS, LAGS, MISMATCHES) for line in registry.broken]
    lines += ["", "lag models (LAG=name, name:value or name[option=value,...])"]
    for family in dict.fromkeys(entry["family"] for entry in content["lags"]):
        lines += ["", family]
        lines += [line for entry in content["lags"] if entry["family"] == family for line in _usage_lines(entry)]
    lines += ["", "mismatch models, of sampler and trainer (MISMATCH=name, several joined by +)"]
    lines += [line for entry in content["mismatches"] for line in _usage_lines(entry)]
    return "\n".join(lines)


def _usage_lines(entry: dict[str, Any]) -> list[str]:
    return ["", f"  {entry['usage']}: {entry['summary']}", *_facts(entry)]


def _facts(entry: dict[str, Any], leading: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Lines `name: value` of a plugin; `leading` ones come first."""
    options = ", ".join(
        key if value in (None, "") else f"{key}={format_value(value)}"
        for key, value in entry["hyper_parameters"].items()
    )
    facts = {**leading, "paper": entry["paper"], "options": options, "file": entry["file"]}
    return [f"      {name + ':':9}{value}" for name, value in facts.items() if value]


def _by_family(entries: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Group methods as (family, its description, methods): families in the order of their files, then others."""
    order = [*dict.fromkeys(key for entry in entries for key in families(ALGORITHMS[entry["name"]])), OTHER]
    groups = [(key, [e for e in entries if e["family"] == key]) for key in order]
    return [(key, members[0]["does"], members) for key, members in groups if members]


def _ratio(entry: dict[str, Any]) -> str:
    """Describe the ratio, as in `token; weight: cut to 2; trust region: none; anchor: μ`."""
    parts = [entry["level"]] + [
        f"{words} {entry[key]}"
        for key, words in (("transform", "weight"), ("trust_region", "trust region"), ("anchor", "anchor"))
        if entry[key]
    ]
    return "; ".join(filter(None, parts))
