"""Pages of the built-in methods, docs/methods/*.md, and the table of docs/methods.md, from their files and
algorithms/methods.toml; from the published results, docs/leaderboard.md and .html, docs/staleness_budgets.md,
docs/corrections.md, docs/early_warnings.md, and the maps of docs/staleness.md.

    python docs/generate.py

A page holds formula, source, options with defaults and the comments beside them, what each mechanism touches, and
traps. A test asserts that the committed pages are what this writes.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import leaderboard
from corrections import corrections
from early_warnings import early_warnings
from fields import descriptions, option_text
from marks import between_marks
from staleness_budgets import staleness_budgets

from staleharness.algorithm import ALGORITHMS, NEEDS, Algorithm
from staleharness.base.plugins import builtin_folder, source_file, summary
from staleharness.base.table_formatting import markdown_table
from staleharness.errors import UserError
from staleharness.figures.registry import sheet
from staleharness.pages.leaderboard_page import MethodText
from staleharness.statistics.results import load
from staleharness.training.method_descriptions import MethodEntry, entry_of, extra_passes, families

FOLDER = Path(__file__).resolve().parent / "methods"
PUBLISHED = FOLDER.parents[1] / "results" / "reference"
TABLE = "<!-- {} of the table, which docs/generate.py writes from algorithms/methods.toml -->"
CONTROLS = {  # of StaleBench
    "ppo_clip_window": "Control: PPO-clip with the window of d usual ones, [0.8ᵈ, 1.2ᵈ] at a mean lag of d phases.",
    "vaco_no_trust_region": "Control: VACO without its filter, so that nothing bounds the step.",
}
MAP = "<!-- {} of the map, which docs/generate.py writes from results/reference/{} -->"


def pages() -> dict[str, str]:
    """File name -> text: a page per built-in method."""
    return {f"{cls.name}.md": page(cls) for cls in built_in_methods()}


def built_in_methods() -> list[type[Algorithm]]:
    own = builtin_folder("algorithms").resolve()
    return [cls for cls in map(ALGORITHMS.__getitem__, ALGORITHMS) if Path(source_file(cls)).parent == own]


def method_texts() -> dict[str, MethodText]:
    """Words for the card of each built-in method on the leaderboard."""
    methods = built_in_methods()
    texts = {cls.name: MethodText(summary(cls), card_text(cls), cls.paper, f"methods/{cls.name}.md") for cls in methods}
    return texts | {name: MethodText(text) for name, text in CONTROLS.items()}


def card_text(cls: type[Algorithm]) -> str:
    """Docstrings of a method and its bases as text: paragraphs without an indented line are one line each."""
    parts = [body(cls), *base_texts(cls)]
    paragraphs = "\n\n".join(filter(None, parts)).split("\n\n")
    flowing = [p if re.search(r"^\s|^`[^`]+`\s{2}", p, re.MULTILINE) else " ".join(p.split("\n")) for p in paragraphs]
    return re.sub(r"`([^`]+)`", r"\1", "\n\n".join(flowing))


def page(cls: type[Algorithm]) -> str:
    entry, file = entry_of(cls), Path(source_file(cls)).name
    parts = [
        f"<!-- Made by docs/generate.py from algorithms/{file} and algorithms/methods.toml: edit those. -->",
        f"# {cls.name}",
        summary(cls),
        markdown_table(("", ""), facts(cls, entry)),
        "## Formula",
        prose(body(cls)),
    ]
    parts += [prose(text) for text in base_texts(cls)]
    if rows := option_rows(cls):
        parts += ["## Options", f"`ALGO='{cls.name}[{example(cls)}]'` sets one; each setting is a run of its own."]
        parts.append(markdown_table(("option", "default", "values", "what it is"), rows))
    parts += ["## What touches what", touches(entry), "## Traps"]
    parts.append("\n".join(f"- {trap}" for trap in [*entry.traps, *inactive_note(cls)]))
    return "\n\n".join(parts) + "\n"


def facts(cls: type[Algorithm], entry: MethodEntry) -> list[tuple[str, str]]:
    file = Path(source_file(cls)).name
    needs = " and ".join(NEEDS[key] for key in NEEDS if key in cls.needs)
    return [
        ("family", f"{entry.family}: {families(cls)[entry.family]}"),
        ("ratio", entry.level),
        ("weight", entry.transform),
        ("trust region", entry.trust_region),
        ("anchor", entry.anchor),
        ("extra passes, on tokens", str(extra_passes(cls()))),
        ("needs", needs or "nothing: defined on control and on tokens"),
        ("source", re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", cls.paper)),
        ("file", f"[algorithms/{file}](../../algorithms/{file})"),
    ]


def body(cls: type[Algorithm]) -> str:
    """Docstring without its first line and without the sentence that points to the file."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].strip()
    return re.sub(r"\s*Options\s+are\s+explained\s+in\s+this\s+file\.", "", text)


def prose(text: str) -> str:
    """Docstring as Markdown: names with a hanging text become a list, indented text stays as it is."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if re.match(r"`[^`]+`\s{2,}", paragraph):
            lines = [line.strip() for line in paragraph.splitlines()]
            items = [re.sub(r"^(`[^`]+`)\s{2,}", r"- \1: ", line) for line in lines]
            paragraph = "\n".join(line if line.startswith("- `") else f"  {line}" for line in items)
        paragraphs.append(paragraph)
    return re.sub(r"\b(\w)\*", r"\1\*", "\n\n".join(paragraphs))  # V*, a symbol and no emphasis


def base_texts(cls: type[Algorithm]) -> list[str]:
    """Text of each base class of the method: what its methods share, or the name of the method that it is."""
    texts = []
    for base in documented_bases(cls):
        names = sorted(f"`{c.name}`" for c in built_in_methods() if base in c.__mro__)
        if "name" in base.__dict__:
            texts.append(f"Everything else is as in `{base.name}`.")
        elif text := body(base):
            texts.append(f"{', '.join(names[:-1])} and {names[-1]} have this in common.\n\n{text}")
    return texts


def documented_bases(cls: type[Algorithm]) -> list[type[Algorithm]]:
    """Base classes of the method with a docstring of their own."""
    bases = [c for c in cls.__mro__[1:] if issubclass(c, Algorithm) and c is not Algorithm]
    return [c for c in reversed(bases) if c.__doc__ and not c.__doc__.startswith(f"{c.__name__}(")]


def option_rows(cls: type[Algorithm]) -> list[tuple[str, str, str, str]]:
    types, texts = cls.hyper_parameter_types(), dict(entry_of(cls).options)
    for c in reversed(cls.__mro__):
        if issubclass(c, Algorithm) and c is not Algorithm:
            texts |= {key: text for key, text in descriptions(c).items() if text}
    return [
        (f"`{key}`", f"`{option_text(default)}`", values(types[key]), texts.get(key, ""))
        for key, default in cls.hyper_parameters().items()
    ]


def values(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    return {bool: "`true`, `false`", float: "number", int: "whole number", str: "text"}[hint]


def example(cls: type[Algorithm]) -> str:
    """An option with another value than its default."""
    return next(f"{key}={option_text(value)}" for key, value in alternatives(cls))


def alternatives(cls: type[Algorithm]) -> list[tuple[str, Any]]:
    """(option, value) other than the default: all choices, and one other number."""
    pairs: list[tuple[str, Any]] = []
    for key, hint in cls.hyper_parameter_types().items():
        default = cls.hyper_parameters()[key]
        if get_origin(hint) is Literal:
            pairs += [(key, choice) for choice in get_args(hint) if choice != default]
        elif hint is bool:
            pairs.append((key, not default))
        else:
            pairs.append((key, hint(0.2 if default == 0 else 2 * default)))
    return pairs


def inactive_note(cls: type[Algorithm]) -> list[str]:
    """Note on options whose mechanism cannot act if a phase has one gradient step."""
    names = [f"`{cls.name}`"] if cls().inactive(1) else []
    for key, value in alternatives(cls):
        try:
            is_inactive = cls(**{key: value}).inactive(1)
        except UserError:
            continue  # not valid without another option
        if is_inactive and not names:
            names.append(f"`{cls.name}[{key}={option_text(value)}]`")
    if not names:
        return []
    return [
        f"With one gradient step a phase (N = 1) π/π_prox is always 1, so that in {names[0]} what acts around "
        "π_prox never acts, however stale the data are; the run warns of it."
    ]


def touches(entry: MethodEntry) -> str:
    rows = [(f"`algorithm/{key}`", text) for key, text in entry.touches.items()]
    measured = (
        "Every run measures `clipped`, the share of decisions that had an advantage and got no gradient from "
        "the method."
    )
    if not rows:
        return f"{measured} This one reports nothing else."
    return f"{measured} This one also reports, averaged over decisions:\n\n{markdown_table(('diagnostic', 'of'), rows)}"


def with_table(page: str) -> str:
    """Insert the table of all methods between its two marks in docs/methods.md."""
    methods, parts = built_in_methods(), []
    for family, text in families(methods[0]).items():
        members = [cls for cls in methods if entry_of(cls).family == family]
        head = ("method", "ratio", "weight", "trust region", "anchor", "passes")
        parts += [f"**{family.capitalize()}.** {text[0].upper()}{text[1:]}."]
        parts.append(markdown_table(head, [row(cls) for cls in members]))
    return between_marks(page, TABLE.format("Begin"), TABLE.format("End"), "\n\n".join(["", *parts, ""]))


def row(cls: type[Algorithm]) -> tuple[str, ...]:
    entry = entry_of(cls)
    passes = str(extra_passes(cls()))
    return (
        f"[{cls.name}](methods/{cls.name}.md)",
        entry.level,
        entry.transform,
        entry.trust_region,
        entry.anchor,
        passes,
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    generated = pages()
    for name in {path.name for path in FOLDER.glob("*.md")} - set(generated):
        (FOLDER / name).unlink()
    for name, text in generated.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    methods = FOLDER.parent / "methods.md"
    methods.write_text(with_table(methods.read_text(encoding="utf-8")), encoding="utf-8")
    (FOLDER.parent / "staleness_budgets.md").write_text(staleness_budgets(PUBLISHED), encoding="utf-8")
    leaderboard.write(FOLDER.parent, PUBLISHED, method_texts())
    readme = FOLDER.parents[1] / "README.md"
    readme.write_text(leaderboard.with_readme_table(readme.read_text(encoding="utf-8"), PUBLISHED), encoding="utf-8")
    (FOLDER.parent / "corrections.md").write_text(corrections(PUBLISHED), encoding="utf-8")
    (FOLDER.parent / "early_warnings.md").write_text(early_warnings(PUBLISHED), encoding="utf-8")
    staleness = FOLDER.parent / "staleness.md"
    staleness.write_text(with_map(staleness.read_text(encoding="utf-8")), encoding="utf-8")


def with_map(page: str) -> str:
    """Insert each map of backward and forward lag between its two marks."""
    for bundle in re.findall(MAP.format("Begin", r"(\w+)"), page):
        table = sheet("backward_forward", load(PUBLISHED / bundle)).markdown()
        page = between_marks(page, MAP.format("Begin", bundle), MAP.format("End", bundle), f"\n\n{table}\n\n")
    return page


if __name__ == "__main__":
    main()
