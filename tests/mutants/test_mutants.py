"""The list of changes cannot rot: every snippet is there, once, and what it becomes is Python."""

from __future__ import annotations

import ast

import pytest
from run import ROOT, Mutant, main, read

MUTANTS = read()
LEARNER = "staleharness/training/base_learner.py"


def test_every_change_is_a_change_of_one_place_that_still_parses() -> None:
    for mutant in MUTANTS:
        assert mutant.before != mutant.after, mutant
        text = mutant.mutant_text()
        if mutant.file.endswith(".py"):
            ast.parse(text, filename=str(mutant))


def test_every_mutant_is_unique_and_names_existing_tests() -> None:
    for mutant in MUTANTS:
        for test in mutant.tests.split():
            assert (ROOT / test.partition("::")[0]).exists(), mutant
    assert len({(m.file, m.before, m.after) for m in MUTANTS}) == len(MUTANTS) >= 60


@pytest.mark.parametrize("package", ["asynchronous", "tokens"])
def test_a_mirrored_folder_notices_its_own(package: str) -> None:
    mutants = [mutant for mutant in MUTANTS if mutant.file.startswith(f"staleharness/{package}/")]
    strangers = [m for m in mutants for test in m.tests.split() if not test.startswith(f"tests/{package}/")]
    assert len(mutants) > 10 and not strangers, "\n".join(map(str, strangers))


@pytest.mark.parametrize("before", ["no such line", "self"])
def test_a_snippet_that_is_not_there_once_is_said_in_one_line(
    before: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rotten = Mutant(LEARNER, before, "pass", "for this test", "tests/lags/test_models.py")
    monkeypatch.setattr("run.read", lambda: [rotten])
    assert main([]) == 1
    said = capsys.readouterr().out.strip()
    assert "\n" not in said and said.startswith(f"{LEARNER}: for this test: `before` is found")
    assert said.endswith("update its entry in tests/mutants")


def test_a_word_that_nothing_holds_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-k", "no such word"]) == 1
    assert "no change has 'no such word'" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        ("np.power(self.decay, 2.0 * lag)", 0, "caught by tests/lags/test_models.py::test_"),
        ("np.power(self.decay, 1.0 * lag)", 1, "SURVIVED"),
        ("np.power(self.decay, (lag)", 1, "no answer"),
    ],
    ids=["caught", "survived", "broken"],
)
def test_a_change_is_caught_or_survives(
    after: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    geometric, before = "staleharness/lags/lag_distributions.py", "np.power(self.decay, lag)"
    change = Mutant(geometric, before, after, "decay", "tests/lags/test_models.py")
    monkeypatch.setattr("run.read", lambda: [change])
    assert main(["--jobs", "1"]) == code
    assert said in capsys.readouterr().out
