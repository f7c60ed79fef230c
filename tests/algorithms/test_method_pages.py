"""The pages of the methods are what their generator writes, and what they say of the cost is so."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from places import ROOT

from staleharness.algorithm import ALGORITHMS


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generate: ModuleType) -> dict[str, str]:
    return generate.pages()


def test_the_committed_pages_are_what_the_code_says_now(generate: ModuleType, pages: dict[str, str]) -> None:
    held = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "methods").iterdir()}
    stale = sorted(name for name in held.keys() | pages.keys() if held.get(name) != pages.get(name))
    assert not stale, f"run `make docs`: {', '.join(stale)}"
    index = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert index == generate.with_table(index), "run `make docs`"
    assert [f"(methods/{name})" for name in pages if f"| [{name[:-3]}](methods/{name}) |" not in index] == []


def test_the_map_of_lags_is_that_of_the_published_runs(generate: ModuleType) -> None:
    page = (ROOT / "docs" / "staleness.md").read_text(encoding="utf-8")
    assert page == generate.with_map(page), "run make docs"
    assert "| 256 steps | 1.00 [1.00, 1.00] n = 5 |" in page


def test_every_option_of_every_method_is_explained(generate: ModuleType, pages: dict[str, str]) -> None:
    for name in pages:
        cls = ALGORITHMS[name.removesuffix(".md")]
        rows = generate.option_rows(cls)
        assert [row[0] for row in rows] == [f"`{key}`" for key in cls.hyper_parameters()]
        assert not [row for row in rows if not all(row)], name


def test_a_page_has_all_its_parts_and_no_cell_is_empty(pages: dict[str, str]) -> None:
    for name in pages:
        text = pages[name]
        assert re.findall(r"^## (.*)$", text, re.MULTILINE)[-2:] == ["What touches what", "Traps"], name
        assert len(re.search(r"## Formula\n\n(.*?)\n\n##", text, re.DOTALL)[1]) > 100, name
        assert len(re.findall(r"\|  \|", text)) == 1, name  # the head of the first table
        assert "Options are" not in text and str(ROOT) not in text


def test_every_link_of_a_page_leads_somewhere(pages: dict[str, str]) -> None:
    for text in pages.values():
        for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
            assert (ROOT / "docs" / "methods" / target).is_file(), target


def test_the_comment_behind_a_field_is_found_wherever_it_stands(generate: ModuleType) -> None:
    assert generate.descriptions(ALGORITHMS["ppo_clip"])["clip_high"] == "ε above ratio 1; 0 is the same as `clip`"
    rows = {row[0]: row for row in generate.option_rows(ALGORITHMS["icepop"])}
    assert rows["`veto`"][3].startswith("a token ratio below which")  # declared two classes above
    assert rows["`low`"][1] == "`0.5`" and rows["`normalise`"][2] == "`true`, `false`"


def test_text_is_made_into_markdown_that_shows_it_as_meant(generate: ModuleType) -> None:
    assert generate.prose("`a`   one\n      two\n`b`   three") == "- `a`: one\n  two\n- `b`: three"
    assert generate.prose("One `a` two\nthree") == "One `a` two\nthree"
    assert generate.markdown_table(("a",), [("|x|",)]) == "| a |\n| --- |\n| \\|x\\| |"


def test_where_a_mechanism_is_idle_is_found_by_asking_the_method(generate: ModuleType) -> None:
    said = {name: generate.inactive_note(ALGORITHMS[name]) for name in ("tis", "decoupled_ppo", "spo", "ppo_clip")}
    assert "`tis[clip=0.2]`" in said["tis"][0] and "`ppo_clip[anchor=proximal]`" in said["ppo_clip"][0]
    assert "in `decoupled_ppo` what" in said["decoupled_ppo"][0] and said["spo"] == []
