"""Draws of a run's lag model: their random numbers, checks of the assignments, and the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from staleharness.base.streams import stream
from staleharness.chain.spec import ChainSpec
from staleharness.errors import UserError
from staleharness.lag import LAGS, Assignment, Draw, LagModel
from staleharness.training.version_assignment import Lags


def lags(**settings: Any) -> Lags:
    return Lags(ChainSpec.from_dict({"env": "bit-chain", "algorithm": "seq_is", "capacity": 4, **settings}))


@pytest.fixture
def assignment_fields(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Fields of the assignment that the lag model `answers` returns."""
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", dict(LAGS._classes))
    values: dict[str, Any] = {}

    @LAGS.register("answers")
    @dataclass(frozen=True)
    class GivenAssignment(LagModel):
        """Lag model that returns a given assignment."""

        fields: ClassVar[Mapping[str, Any]] = values

        def assign(self, draw: Draw) -> Assignment:
            return Assignment(**{"versions": np.full((draw.slots, 1), draw.phase), **self.fields})

    return values


@pytest.mark.parametrize(
    ("said", "expected"), [("keep takes no NaN", "LAG=refuses: keep takes no NaN"), ("LAG=a starves", "LAG=a starves")]
)
@pytest.mark.usefixtures("assignment_fields")
def test_what_a_model_refuses_itself_names_it(said: str, expected: str) -> None:
    @LAGS.register("refuses")
    @dataclass(frozen=True)
    class Refuses(LagModel):
        def assign(self, draw: Draw) -> Assignment:
            raise UserError(said)

    with pytest.raises(UserError, match=f"^{expected}$"):
        lags(lag="refuses").draw(5, 7)


def test_the_noise_of_a_draw_is_named_by_seed_phase_and_index() -> None:
    one = lags(lag="uniform", seed=5)
    for index in ((), (3,), (3, 1)):
        expected = 9 - stream(5, "assignment", 9, *index).integers(0, 4, size=20)
        assert one.draw(9, 20, *index).starts.tolist() == expected.tolist()


def test_a_draw_does_not_depend_on_those_before_it() -> None:
    one, other = lags(lag="geometric:0.5"), lags(lag="geometric:0.5")
    for phase in range(5):
        one.draw(phase, 7)
    assert np.array_equal(one.draw(5, 7).versions, other.draw(5, 7).versions)


def test_probabilities_and_oldest_are_for_the_buffer_of_the_run() -> None:
    one = lags(lag="uniform/sync:3")
    assert one.probabilities(5) == {3: 1 / 3, 4: 1 / 3, 5: 1 / 3} and one.oldest(5) == 3
    assert lags(lag="uniform", capacity=2).probabilities(5) == {4: 1 / 2, 5: 1 / 2}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"versions": np.array([[9], [5]])}, "versions 5 to 9 in phase 9, where the buffer holds 6 to 9"),
        ({"versions": np.array([[9], [10]])}, "versions 9 to 10 in phase 9"),
        ({"versions": np.array([[9]])}, r"shape \(1, 1\) in phase 9, where \(2, 1\)"),
        ({"versions": np.array([[8, 9], [8, 9]])}, r"shape \(2, 2\)"),
        ({"versions": np.array([[8, 9], [8, 9]]), "every": 2}, r"where \(2, 3\)"),
        ({"every": 5}, "changes weights inside a row but does not declare within_rows = True"),
        ({"versions": [[9], [9]]}, "versions as a list of int64; give an array of whole numbers"),
        ({"versions": np.array([[8.5], [9.0]])}, "versions as a ndarray of float64; give an array of whole"),
        ({"versions": np.array([[9, 9, 9], [8, 9, 7]]), "every": 2}, "goes back to an older version inside a row"),
        ({"ledger": {"lost": 1}}, "counts 'lost'; a ledger has dropped, waited, in_flight, in_queue"),
        ({"ledger": {"dropped": -1}}, "counts -1 rows as 'dropped'; give a whole number, not below 0"),
        ({"ledger": {"dropped": 0.5}}, "counts 0.5 rows as 'dropped'"),
        ({"ledger": None}, "has the ledger None; give a dict of counts"),
        ({"every": 0}, "segments of every=0 decisions; give a whole number above 0, or None"),
        ({"every": 2.5}, "segments of every=2.5 decisions"),
        ({"every": True}, "segments of every=True decisions"),
        ({"versions": [[8, 9], [9]]}, "segments of different numbers"),
    ],
)
def test_an_impossible_answer_is_one_line(
    assignment_fields: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    assignment_fields.update(fields)
    with pytest.raises(UserError, match=words) as error:
        lags(lag="answers").draw(9, 2, length=5)
    assert str(error.value).startswith("LAG=answers ") and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64])
def test_versions_of_any_whole_type_are_taken_as_int64(assignment_fields: dict[str, Any], kind: type) -> None:
    assignment_fields.update(versions=np.array([[9], [7]], dtype=kind))
    assert lags(lag="answers").draw(9, 2).versions.dtype == np.int64


def test_a_model_that_gives_no_model_for_a_capacity_is_one_line(
    assignment_fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LAGS["answers"], "at", lambda self, capacity: None)
    with pytest.raises(UserError, match=r"^LAG=answers: at\(4\) returns None, not a lag model$"):
        lags(lag="answers")


def test_the_draw_ledger_sums_the_draws_of_one_phase(assignment_fields: dict[str, Any]) -> None:
    one = lags(lag="answers")
    assert one.draw(0, 3).ledger == {} == one.ledger(0)
    assignment_fields["ledger"] = {"in_queue": 2, "dropped": 1}
    one.draw(1, 3)
    one.draw(1, 3, 1)
    assert one.ledger(1) == {"lag_dropped": 2, "lag_in_queue": 4}
    assert one.ledger(0) == {} == one.ledger(2)
    one.draw(2, 3)
    assert one.ledger(2) == {"lag_dropped": 1, "lag_in_queue": 2}
    one.draw(3, 3, fresh=np.array([True, False, False]))
    assert one.ledger(3) == {}, "the model counts all rows, of which one begins"


def test_counts_may_be_of_any_integer_type_and_can_be_written_down(assignment_fields: dict[str, Any]) -> None:
    assignment_fields["ledger"] = {"dropped": np.int64(2), "waited": np.uint8(200)}
    one = lags(lag="answers")
    one.draw(3, 2)
    one.draw(3, 2, 1)
    assert json.dumps(one.ledger(3)) == '{"lag_dropped": 4, "lag_waited": 400}'
