"""Days of tests and runs: the sentence on a page, and the file that git's history gives."""

from __future__ import annotations

import json

import figure_dates as dates
import pytest

from staleharness.pages.figure_provenance import dates_note


def test_a_page_says_when_its_tests_were_written() -> None:
    entry = {"first": "2026-01-01", "last": "2026-01-01", "runs": "2026-01-05"}
    assert dates_note(entry | {"before": "yes"}).endswith("2026-01-01, before its runs were published (2026-01-05).")
    after = dates_note({"first": "2026-02-01", "last": "2026-02-03", "runs": "2026-01-05", "before": "no"})
    assert "written after its runs: tests of 2026-02-01, last changed on 2026-02-03" in after
    mixed = dates_note(entry | {"last": "2026-03-01", "before": "earlier ones"})
    assert "before its runs were published (2026-01-05), and changed after that, on 2026-03-01" in mixed
    assert dates_note(None) == ""


def test_words_of_a_test_are_no_part_of_it() -> None:
    text = 'study = "a"\n[[part]]\nsays = "x"\nof = ["tis"]\nthan = 1.0\n'
    assert dates.definition(text) == dates.definition(text.replace('"x"', '"another"'))
    assert dates.definition(text) == dates.definition(text.replace("says", 'claim = "TIS"\nsays'))
    assert dates.definition(text) != dates.definition(text.replace("1.0", "2.0"))
    assert dates.definition(text) != dates.definition(text.replace('"a"', '"b"'))
    assert dates.definition('study = "a"\n[[part]]\nsays = "x"\nuntested = "no runs"\n') == ""


def test_docstrings_of_a_program_are_no_part_of_its_tests() -> None:
    text = 'def p():\n    "Return p."\n    return 0.05\n'
    assert dates.program_definition(text) == dates.program_definition(text.replace("Return p", "p of the test"))
    assert dates.program_definition(text) != dates.program_definition(text.replace("0.05", "0.1"))


@pytest.mark.long
def test_the_file_is_what_git_says() -> None:
    if not dates.is_complete():
        pytest.skip("a checkout without its whole history cannot tell")
    assert json.loads(dates.FILE.read_text()) == dates.all_dates(), "run python docs/figure_dates.py"
