"""Lags of rows, computed row by row, and a ledger that ends the run where it does not close."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from staleharness.training.lag_stats import LearnerRows, add_histograms, first_and_last_lags, lag_stats, mean_lag
from staleharness.training.sample_ledger import Count, Flow, Ledger

PHASE, STEPS = 9, 90


def literal(versions: np.ndarray, trained_mask: np.ndarray) -> dict[str, float]:
    """The columns of one prefix, by the words of their names."""
    start, oldest, newest, trained = [], [], [], []
    for row, is_trained in zip(versions, trained_mask, strict=True):
        lags = [PHASE - v for v, t in zip(row, is_trained, strict=True) if t]
        if lags:
            start.append(PHASE - row[0])
            oldest.append(max(lags))
            newest.append(min(lags))
            trained += lags
    flight = [a - b for a, b in zip(oldest, newest, strict=True)]
    columns = {"trained": trained, "start": start, "oldest": oldest, "newest": newest, "in_flight": flight}
    return {name: float(np.mean(x)) for name, x in columns.items()} | {"in_queue": float(np.mean(newest))}


def drawn(seed: int, within: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Versions, valid decisions (padding behind) and those trained on, [6, 5]."""
    rng = np.random.default_rng(seed)
    versions = rng.integers(3, PHASE + 1, (6, 5)) if within else np.repeat(rng.integers(3, PHASE + 1, (6, 1)), 5, 1)
    valid = np.arange(5) < rng.integers(1, 6, (6, 1))
    return versions, valid, valid & (rng.random((6, 1)) < 0.6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("within", [False, True], ids=["constant rows", "rows that change"])
@pytest.mark.parametrize("masks", ["none", "full", "padded", "cut"])
def test_lags_are_those_of_the_decisions_trained_on(seed: int, within: bool, masks: str) -> None:
    versions, valid, trained_mask = drawn(seed, within)
    if masks in ("none", "full"):
        valid = np.ones_like(valid)
    if masks != "cut":
        trained_mask = valid
    tensors = [
        torch.from_numpy(x)
        for x in (versions, 10 * versions, valid.astype(np.float32), trained_mask.astype(np.float32))
    ]
    given = {"none": 2, "full": 3, "padded": 3, "cut": 4}[masks]
    found = lag_stats(LearnerRows(*tensors[:given]), PHASE, STEPS)
    wanted = literal(versions, trained_mask)
    for name, value in wanted.items():
        assert found.columns[f"lags/{name}"] == pytest.approx(value), name
        assert found.columns[f"gradient_lags/{name}"] == pytest.approx(10 * value), name
    assert found.handed_lags == np.bincount((PHASE - versions)[valid]).tolist()
    assert found.trained_lags == np.bincount((PHASE - versions)[trained_mask]).tolist()
    assert found.handed_count == Count(int(valid.any(1).sum()), int(valid.sum()))
    assert found.trained_count == Count(int(trained_mask.any(1).sum()), int(trained_mask.sum()))


def test_rows_without_trained_decisions_have_no_lag() -> None:
    versions = torch.full((2, 3), 5)
    found = lag_stats(LearnerRows(versions, versions, torch.ones(2, 3), torch.zeros(2, 3)), PHASE, STEPS)
    assert found.columns == {} and found.trained_lags == [] and found.trained_count == Count()
    assert found.handed_count == Count(2, 6)


def test_first_and_last_lags_are_means_under_the_mask() -> None:
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    first = (torch.tensor([[4.0, 9.0], [1.0, 1.0]]), torch.tensor([[40.0, 9.0], [10.0, 10.0]]), mask)
    last = (torch.tensor([[1.0]]), torch.tensor([[13.0]]), torch.ones(1, 1))
    assert first_and_last_lags(first, last) == {
        "lags/first": 2.0,
        "gradient_lags/first": 20.0,
        "lags/last": 1.0,
        "gradient_lags/last": 13.0,
    }
    assert first_and_last_lags(last, last)["gradient_lags/last"] == 13.0
    assert first_and_last_lags((*first[:2], 0 * mask), None) == {}


def test_histograms_of_any_length_add_up() -> None:
    assert add_histograms([1, 2], [3]) == [4, 2] == add_histograms([3], [1, 2]) and add_histograms([], []) == []
    assert mean_lag([1, 0, 3]) == 1.5 and mean_lag([]) is None and mean_lag([0]) is None


FLOW: dict[str, Any] = {"generated": Count(4, 40), "dropped": Count(1, 10), "queued": Count(1, 10)}


def test_a_ledger_sums_phases_and_counts_the_current_queue() -> None:
    ledger = Ledger()
    ledger.enter(0, Flow(**FLOW), handed_count=Count(2, 20), trained=Count(1, 15))
    totals = ledger.enter(1, Flow(Count(4, 40), queued=Count(2, 20), reused=Count(1, 10)), Count(4, 40), Count(4, 40))
    assert {key.partition("/")[2]: n for key, n in totals.items() if key.startswith("decisions/")} == {
        "generated": 80,
        "trained": 45,
        "dropped": 10,
        "masked": 5,
        "queued": 20,
        "reused": 10,
    }
    assert totals["sequences/generated"] == 8 == 4 + totals["sequences/dropped"] + totals["sequences/masked"] + 2


def test_a_ledger_has_lost_rows_only_where_actors_can_be_lost() -> None:
    plain, ledger = Ledger(), Ledger()
    assert "sequences/lost" not in plain.enter(0, Flow(**FLOW), Count(2, 20), Count(2, 20))
    first = ledger.enter(0, Flow(**FLOW, lost=Count()), Count(2, 20), Count(2, 20))
    assert first["sequences/lost"] == 0
    totals = ledger.enter(1, Flow(Count(4, 40), lost=Count(1, 7)), Count(4, 43), Count(4, 43))
    assert (totals["sequences/lost"], totals["decisions/lost"]) == (1, 7)
    with pytest.raises(RuntimeError, match=r"does not close after phase 2: .* queued 2, lost 1, reused 0"):
        ledger.enter(2, Flow(Count(3, 30), queued=Count(2, 20), lost=Count()), Count(2, 20), Count(2, 20))


@pytest.mark.parametrize(
    ("change", "handed", "trained"),
    [
        ({}, Count(3, 20), Count(3, 20)),  # a sequence more than was made
        ({}, Count(2, 19), Count(2, 19)),  # a decision less
        ({}, Count(2, 20), Count(3, 20)),  # more trained on than handed over: masked would be negative
        ({"queued": Count()}, Count(2, 20), Count(2, 20)),
        ({"dropped": Count()}, Count(2, 20), Count(2, 20)),
        ({"reused": Count(0, 1)}, Count(2, 20), Count(2, 20)),
    ],
)
def test_a_ledger_that_does_not_close_ends_the_run(change: dict[str, Count], handed: Count, trained: Count) -> None:
    Ledger().enter(0, Flow(**FLOW), Count(2, 20), Count(2, 20))
    with pytest.raises(RuntimeError, match=r"ledger of \w+ does not close after phase 3: generated"):
        Ledger().enter(3, Flow(**{**FLOW, **change}), handed, trained)
