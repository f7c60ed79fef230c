"""Language rules: names and docstrings that a reader of the field finds by one search."""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("staleharness", "algorithms", "envs")
CLAUSES = re.compile(
    r"(What|Whether|How|Who|Whose|Whoever|Which|Where|When|Why|Of|Those|These|That|This|As|It|They|Each of which|"
    r"Whatever|Whichever|One that|Ones that)\b"
)
# Irregular participles and pronouns that had become names; regular ones are found by their ending.
PRIVATE = set(
    """
    again ages answers apart beside been begun behind brought built chosen come drawn elsewhere few flows found
    given gone grown held here hers his it its kept known made meant might much ours own paid past pull read_in
    said sat seen
    sent set_up shown sought spent spoken stood such taken taught their theirs them there they thought told
    told_apart torn understood untold unasked ways went whole whose why without wont worn written yours
    """.split()
)
# Pronouns, question words and determiners.
PRONOUNS = set(
    """
    any_ both each enough every every_one everyone everything how less many more most none nothing one same several
    some what when which who whom
    """.split()
)
NOT_PARTICIPLES = set("bed embed exceed feed need proceed red seed shed sheds speed unneed weightfeed".split())
# Names that users type, that plugins import, or that are the field's own word for a value.
PUBLIC = {"fixed", "registered", "trained", "dropped", "generated", "held", "seeded", "unbiased", "mixed", "nested"}
PUBLIC |= {"ordered"}  # a key of the files of figures, and an option of their drawings
PUBLIC |= {"truncated", "unparsed", "expected"}  # keys of stored records
PUBLIC |= {"diverged", "actorsnotstarted", "changed", "interrupted", "runsfailed", "failed"}  # errors
PUBLIC |= {"completed", "identified", "paced", "vetoed", "terminated"}  # of kinds of task, weights and gymnasium
PUBLIC |= {"queued", "reused", "lost", "derived"}  # entries of the ledger; of environment plugins
PUBLIC |= {"closed"}  # as Python's files and pools say it
PUBLIC |= {"untested"}  # a key of the files of figures
PUBLIC |= {"drawn", "retired", "buffered"}  # of lag models and plugins
PUBLIC |= {"published"}  # runs, as opposed to those that a user made
PUBLIC |= {"retained"}  # share of a score, in the table of StaleBench
PUBLIC |= {"kept", "apart", "finished"}  # fields of schedules, which lag models with published runs fill in
# Plugins whose runs are published: ids hash their syntax trees, local names included.
HASHED = ("algorithms/", "envs/", *(f"staleharness/lags/{x}.py" for x in ("delay", "queue", "real_time", "trace")))
PUBLIC |= {"skipped", "failed", "interrupted"}  # states of runs in the output of `--json`
PUBLIC |= {"decoded", "ended", "trusted", "completed", "identified", "paced"}  # interfaces of decoders and tasks
# Names that users type or plugins import, in the one file that defines them.
PUBLIC_IN = {
    "staleharness/base/options.py": {"most"},  # keyword of `option`
    "staleharness/commands/show.py": {"answers"},  # to problems
    "staleharness/figures/retention_and_slowdown.py": {"beside"},  # an option of a drawing
    "staleharness/figures/comparisons.py": {"beside"},
    "staleharness/lag.py": {"every"},  # field of `Assignment`, which lag models make
    "staleharness/lags/lag_distributions.py": {"every"},  # options of lag models: `inflight[every=64]`
    "staleharness/lags/wrappers.py": {"every"},
    "staleharness/language/sampler.py": {"answers"},  # to problems
    "staleharness/mismatch.py": {"none"},  # the sampler that is the trainer, as users type it
    "staleharness/objectives.py": {"how"},  # keyword of `aggregation_weights` and `group_baseline`
    "staleharness/pages/paper_figure_specs.py": {"beside"},  # key of the files of figures
    "staleharness/rollout_schedule.py": {"every"},  # field of `PhaseRows`, as in `Assignment`
    "staleharness/statistics/claims/claim_schema.py": {"what"},  # key of the files of figures
    "staleharness/statistics/table.py": {"answers"},  # of a table, as notebooks print them
    "tests/data/envs/oddenvs.py": {"both"},  # an environment that ends in both ways
}


def folders() -> list[str]:
    found = {
        path.parent.relative_to(ROOT)
        for top in (*SOURCES, "benchmarks", "tests")
        for path in (ROOT / top).rglob("*.py")
    }
    return sorted({"/".join(path.parts[:2]) for path in found})


def sources(folder: str) -> Iterator[tuple[str, ast.Module]]:
    """Files of a folder and, below the top of a package, of the folders in it."""
    deep = folder.count("/") == 1 or folder in ("algorithms", "envs", "benchmarks")
    for path in sorted((ROOT / folder).glob("**/*.py" if deep else "*.py")):
        if "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def is_pronoun(name: str) -> bool:
    return name.strip("_").lower() in PRONOUNS


def is_private_word(name: str) -> bool:
    word = name.strip("_").lower()
    if word in PUBLIC or word in NOT_PARTICIPLES:
        return False
    return word in PRIVATE or is_pronoun(name) or (word.endswith("ed") and "_" not in word)


def names_in(tree: ast.Module, values: bool) -> Iterator[tuple[int, str]]:
    """Names that the file gives to functions, classes and, if `values`, arguments, variables and attributes, with
    lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg) and values:
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and values:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and values:
            yield node.lineno, node.attr


def field_docstrings(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each string that stands below a field."""
    for field, below in itertools.pairwise(node.body):
        if not isinstance(field, ast.Assign | ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield below.lineno, below.value.value.strip()


def problems(folder: str) -> list[str]:
    """Violations of one folder, as `file:line: problem`."""
    found = []
    for file, tree in sources(folder):
        if is_private_word(Path(file).stem.removeprefix("test_")):
            found.append(f"{file}: a participle or pronoun as the name of a file")
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                if CLAUSES.match(docstring):
                    line = getattr(node, "lineno", 1)
                    found.append(f"{file}:{line}: a docstring that begins with {docstring.split()[0]!r}")
            if isinstance(node, ast.ClassDef):
                found += [
                    f"{file}:{line}: a field's docstring that begins with {text.split()[0]!r}"
                    for line, text in field_docstrings(node)
                    if CLAUSES.match(text)
                ]
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(node.name) > 64:
                found.append(f"{file}:{node.lineno}: a test name of {len(node.name)} characters: {node.name}")
        names = () if file.startswith(HASHED) else names_in(tree, values=folder.startswith(SOURCES))
        public = PUBLIC_IN.get(file, set())
        found += [
            f"{file}:{line}: the name {n!r}" for line, n in names if is_private_word(n) and n.lower() not in public
        ]
    return found


@pytest.mark.parametrize("folder", folders())
def test_names_and_docstrings_are_plain(folder: str) -> None:
    found = problems(folder)
    assert not found, "\n".join(found)


def classes() -> Iterator[tuple[str, str]]:
    """Classes of the package with their files, built-in plugins left out."""
    for folder in folders():
        if folder.startswith("staleharness"):
            for file, tree in sources(folder):
                yield from ((node.name.strip("_"), file) for node in tree.body if isinstance(node, ast.ClassDef))


def stems() -> Iterator[tuple[str, str]]:
    """Files of the package by stem; commands, lag models and figures are named by what users type."""
    for path in sorted((ROOT / "staleharness").rglob("*.py")):
        if path.parent.name not in ("commands", "lags"):
            yield path.stem, str(path.relative_to(ROOT))


def duplicates(names: Iterator[tuple[str, str]], roles: set[str]) -> dict[str, list[str]]:
    """Names that stand in more than one place, beside the roles that every kind fills."""
    places = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1 and name not in roles}


# One per command, per kind of task, or per package.
ROLE_CLASSES = {"Command"}
ROLE_FILES = {"__init__", "evaluation", "learner", "policy", "rollout_sources", "simulation", "spec", "task"}


def test_one_name_is_one_class_and_one_file() -> None:
    assert not duplicates(classes(), ROLE_CLASSES)
    assert not duplicates(stems(), ROLE_FILES)


def test_the_rules_find_what_they_forbid() -> None:
    tree = ast.parse('def told(asked):\n    """What is said."""\n    kept_rows = found = 1\n')
    assert [name for _, name in names_in(tree, values=True) if is_private_word(name)] == ["told", "asked", "found"]
    tree = ast.parse("class Row:\n    which: int\nfor each, (_some, rows) in what():\n    rows.every = rows\n")
    assert {n for _, n in names_in(tree, values=True) if is_private_word(n)} == {"which", "each", "_some", "every"}
    assert CLAUSES.match("Whether it ends") and not CLAUSES.match("Return whether it ends")
    assert is_private_word("advised") and not is_private_word("seed") and not is_private_word("speed")


if __name__ == "__main__":  # python tests/test_words.py staleharness/store tests/store
    import sys

    if sys.argv[1:] == ["duplicates"]:
        print(*duplicates(classes(), ROLE_CLASSES).items(), *duplicates(stems(), ROLE_FILES).items(), sep="\n")
        sys.exit()
    for folder in sys.argv[1:] or folders():
        print("\n".join(problems(folder)))
