"""Delay lines, caps, exact ages and rounds: worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staleharness.errors import UserError
from staleharness.lag import LAGS, Draw, LagModel, parse_lag, read_lag
from staleharness.rollout_schedule import NEVER, Demand


def lags(text: str, capacity: int, phases: int) -> list[int]:
    """Return the lag of each phase, of a model that assigns one version to all rows."""
    model = parse_lag(text, capacity)
    said = [model.assign(Draw(phase, 3, capacity, key=(phase,))).starts for phase in range(phases)]
    assert all(len(set(versions.tolist())) == 1 for versions in said)
    return [phase - int(versions[0]) for phase, versions in enumerate(said)]


def test_skipping_delay_trains_each_batch_once_in_order() -> None:
    """A queue of three: batches 0 to 3 are of the first policy, for none is trained on before the queue is full."""
    plan = read_lag("delay:3").schedule(Demand(phases=6, groups=2, rows=2, length=5, seed=0))
    trained = plan.phase != NEVER
    assert plan.oldest[trained].reshape(6, 4).tolist() == [[max(0, phase - 3)] * 4 for phase in range(6)]
    assert list(zip(plan.actor[trained], plan.nth[trained], strict=True)) == [
        (actor, phase) for phase in range(6) for actor in (0, 0, 1, 1)
    ]
    assert (plan.nth == np.repeat(np.arange(9), 4)).all(), "three batches wait at the end"
    assert plan.ledger == {
        "rows": {"generated": 36, "trained": 24, "queued": 12},
        "decisions": {"generated": 180, "trained": 120, "queued": 60},
    }


def test_what_a_delay_line_may_do_while_it_fills() -> None:
    assert lags("delay[lag=3,warm_up=reuse]", 4, 7) == [0, 1, 2, 3, 3, 3, 3]
    assert lags("delay[lag=3,warm_up=ramp]", 4, 9) == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    for warm_up, most in (("reuse", 4), ("ramp", 2)):  # how often stored data of one phase would be trained on
        made = [t - lag for t, lag in enumerate(lags(f"delay[lag=3,warm_up={warm_up}]", 4, 40))]
        assert np.bincount(made).max() == most and set(np.bincount(made)[:-1].tolist()) <= {1, 2, 4}


def test_delay_without_a_length_fills_the_buffer() -> None:
    demand = Demand(phases=9, groups=2, rows=1, length=5, seed=0)
    for capacity in (1, 3, 9):
        assert parse_lag("delay", capacity).schedule(demand).longest_lag == capacity - 1
    assert lags("delay[warm_up=reuse]", 5, 8) == lags("oldest", 5, 8)
    assert parse_lag("delay:2", 9).text == "delay:2" and read_lag("delay").text == "delay"
    with pytest.raises(UserError, match=r"LAG=delay:3 needs a buffer of at least K=4"):
        parse_lag("delay:3", 3)


def test_exact_ages_begin_alike() -> None:
    assert lags("exact:3", 4, 7) == [0, 0, 0, 3, 3, 3, 3]
    assert lags("exact[age=3,bootstrap=5]", 4, 7) == [0, 0, 0, 0, 0, 3, 3]
    assert lags("exact[age=0,bootstrap=5]", 4, 7) == [0] * 7
    for text, words in {
        "exact[age=3,bootstrap=2]": "bootstrap must be 0, or at least 3",
        "exact:4": "at least K=5",
    }.items():
        with pytest.raises(UserError, match=words):
            parse_lag(text, 4)


def test_tba_draws_the_latest_round_most_of_the_time() -> None:
    """k = 3 at phase 10: synced at 9, and the latest round that the trainer has began with version 6; a buffer of 8
    holds 3 to 10, and of the rounds before that one 3."""
    model = parse_lag("tba[k=3,m=0.9]", 8)
    assert model.probabilities(10, 8) == pytest.approx({6: 0.95, 3: 0.05})
    assert model.probabilities(2, 8) == {0: 1.0}
    ages = [phase - max(model.probabilities(phase, 8)) for phase in range(12, 24)]
    assert set(ages) == {3, 4, 5}, "k to 2k - 1"
    assert parse_lag("tba[k=1,m=1.0]", 2).probabilities(10, 2) == {9: 1.0}
    with pytest.raises(UserError, match="at least K=6"):
        parse_lag("tba:3", 5)


def test_what_a_cap_does_with_stale_rows() -> None:
    """Uniform over lags 0 to 3, at most 1."""
    said = {
        on_stale: parse_lag(f"cap[max=1,on_stale={on_stale}]", 4).probabilities(9, 4)
        for on_stale in ("evict", "requeue", "withhold")
    }
    assert said["evict"] == pytest.approx({9: 1 / 2, 8: 1 / 2})
    assert said["requeue"] == pytest.approx({9: 3 / 4, 8: 1 / 4})
    assert said["withhold"] == pytest.approx({9: 1 / 4, 8: 3 / 4})


@pytest.mark.parametrize(
    "on_stale, name, share", [("evict", "dropped", 1.0), ("requeue", "dropped", 0.5), ("withhold", "waited", 0.5)]
)
def test_a_cap_counts_what_it_did(on_stale: str, name: str, share: float) -> None:
    """Half of the draws are too old; of those that are drawn again half are too old again, and so on."""
    answer = parse_lag(f"cap[max=1,on_stale={on_stale}]", 4).assign(Draw(9, 20_000, 4, key=(9,)))
    assert set(answer.ledger) == {name}
    assert answer.ledger[name] / 20_000 == pytest.approx(share, abs=0.03)
    assert answer.versions.min() == 8


def test_a_cap_without_young_versions_is_one_error_line() -> None:
    with pytest.raises(
        UserError, match=r"LAG=cap\[max=1,of=fixed:3\] starves in phase 2: fixed:3 draws nothing"
    ) as error:
        parse_lag("cap[max=1,of=fixed:3]", 4)
    assert "\n" not in str(error.value)
    assert lags("cap[max=1,on_stale=withhold,of=fixed:3]", 4, 6) == [0, 1, 1, 1, 1, 1]
    for text in ("areal/cap:2", "inflight:2/cap:2", "delay/cap:2"):
        with pytest.raises(UserError, match="of must be a model that draws"):
            read_lag(text)


def test_a_cap_is_looked_at_once_for_all_runs_of_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def check(self: LagModel, capacity: int) -> None:
        asked.append(capacity)
        if capacity < 4:
            raise UserError("too small")

    monkeypatch.setattr(LAGS["cap"], "check", check)
    for capacity in (61, 61, 62, 61):
        assert parse_lag("geometric:0.61/cap:2", capacity) == read_lag("geometric:0.61/cap:2")
    assert asked == [61, 62]
    for _ in range(2):
        with pytest.raises(UserError, match="too small"):
            parse_lag("geometric:0.61/cap:2", 3)


def starves(text: str, capacity: int) -> bool:
    """Return whether a cap starves in one of the phases that its check looks at, phase by phase."""
    cap: Any = read_lag(text)
    return any(max(cap.model.probabilities(phase, capacity)) < phase - cap.max for phase in range(4 * capacity))


@pytest.mark.parametrize("capacity", [1, 2, 5, 40])
def test_a_cap_is_refused_where_any_phase_starves(capacity: int) -> None:
    models = ["uniform", "geometric:0.5", "poisson:900", "poisson:6", "lognormal[median=30,sigma=0.05]", "oldest"]
    for of in (*models, "tba[k=1,m=1.0]", "uniform/sync:7"):
        for bound in (0, 1, 3, 25):
            text = f"cap[max={bound},of={of}]"
            try:
                parse_lag(text, capacity)
                refused = False
            except UserError as error:
                refused = "starves" in str(error)
                if not refused:
                    continue  # the model needs a larger buffer
            assert refused == starves(text, capacity), text


def test_a_cap_over_a_wide_buffer_looks_at_one_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    uniform = LAGS["uniform"].probabilities

    def probabilities(self: LagModel, phase: int, capacity: int) -> dict[int, float]:
        asked.append(phase)
        assert len(asked) < 9
        return uniform(self, phase, capacity)

    monkeypatch.setattr(LAGS["uniform"], "probabilities", probabilities)
    parse_lag("uniform/cap:3", 70_001)
    assert asked == [70_000]


def test_a_cap_wraps_any_model_and_a_sync_wraps_a_cap() -> None:
    assert read_lag("geometric:0.7/cap:2").text == "cap[max=2,of=geometric:0.7]"
    assert read_lag("uniform/cap:2").text == "cap:2"
    assert read_lag("cap:2/sync:8").text == "cap:2/sync:8"
    assert [model.name for model in read_lag("cap[max=2,of=poisson:1]/sync:8").parts()] == ["sync", "cap", "poisson"]
    assert [parse_lag("uniform/cap:1", 9).oldest(phase) for phase in range(4)] == [0, 0, 1, 2]
