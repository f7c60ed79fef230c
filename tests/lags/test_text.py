"""A lag model is written like an algorithm, or short; it has one text in run ids; and a mistake is one line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from staleharness.errors import UserError
from staleharness.lag import LAGS, DrawnLag, parse_lag, read_lag
from staleharness.running.plan import plan
from staleharness.study import sweep_request

WRITTEN = {  # what may be typed -> what stands in the spec
    "uniform": "uniform",
    "uniform[]": "uniform",
    "oldest": "oldest",
    "fixed:3": "fixed:3",
    "fixed[lag=3]": "fixed:3",
    "fixed[lag=3.0]": "fixed:3",
    "geometric:0.7": "geometric:0.7",
    "geometric[decay=0.7]": "geometric:0.7",
    "geometric[decay=0.70]": "geometric:0.7",
    "geometric:.7": "geometric:0.7",
    "geometric:7e-1": "geometric:0.7",
    "geometric:1": "geometric:1.0",
    "sync:4": "sync:4",
    "sync[every=4]": "sync:4",
    "uniform/sync:4": "uniform/sync:4",
    "sync[every=4,of=uniform]": "uniform/sync:4",
    "uniform/sync[every=4]": "uniform/sync:4",
    "sync[of=geometric[decay=0.7],every=4]": "geometric:0.7/sync:4",
    "geometric[decay=0.7]/sync:4": "geometric:0.7/sync:4",
    "uniform/sync:8/cap:1": "cap[max=1,of=uniform/sync:8]",
    "cap[max=1,of=uniform/sync:8]": "cap[max=1,of=uniform/sync:8]",
    "uniform/sync:8/cap:1/sync:2": "cap[max=1,of=uniform/sync:8]/sync:2",
    "inflight:64": "inflight:64",
    "inflight[every=64]": "inflight:64",
}


@pytest.mark.parametrize("typed", WRITTEN)
def test_one_model_has_one_text_however_it_was_typed(typed: str) -> None:
    model = read_lag(typed)
    assert model.text == WRITTEN[typed]
    assert model == read_lag(WRITTEN[typed]) and hash(model) == hash(read_lag(WRITTEN[typed]))


@given(st.floats(min_value=1e-12, max_value=1.0), st.integers(1, 10**9))
def test_numbers_come_back_as_they_were(decay: float, every: int) -> None:
    model = LAGS["geometric"](decay=decay)  # type: ignore[call-arg]
    assert read_lag(model.text) == model
    synced = read_lag(f"{model.text}/sync:{every}")
    assert read_lag(synced.text) == synced


@pytest.mark.parametrize(
    "text",
    " Uniform fixed fixed: fixed:-1 fixed:1.5 fixed:1e99 fixed:4 geometric geometric:0 geometric:1.01 geometric:-0.5 "
    "geometric:. geometric:half oldest:2 Oldest sync sync:0 sync:5 sync:1.5 uniform/ uniform/sync uniform/sync:0 "
    "uniform/fixed:1 /sync:2 sync:2/sync:2 fixed:4/sync:2 uniform/sync:2/sync:2 inflight inflight:0 inflight:4/sync:2 "
    "fixed[lag=1,lag=2] fixed[lag] fixed[lag=true] fixed:true uniform[decay=1] sync[every=2,of=none] fixed[lag=1 "
    "fixed:nan geometric:inf geometric[decay=nan]".split(" "),
)
def test_what_is_no_lag_model_of_this_buffer_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="LAG") as error:
        parse_lag(text, 4)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unifrom", "did you mean 'uniform'?"),
        ("geometrik:0.5", "did you mean 'geometric'?"),
        ("geometric[dekay=0.5]", "unknown option 'dekay'; did you mean 'decay'?"),
        ("geometric:1.5", "LAG=geometric: decay must be above 0 and at most 1, not 1.5"),
        ("fixed", "lag is missing; give fixed:<lag>"),
        ("fixed:9", "LAG=fixed:9 needs a buffer of at least K=10; K=4 holds lags 0 to 3"),
        ("sync:5", "LAG=sync:5 needs a buffer of at least K=5"),
        ("oldest:2", "oldest has no options"),
        ("unifrom/sync:2", "did you mean 'uniform'?"),
        ("inflight:4/sync:2", "of must be a model whose rows keep their version"),
    ],
)
def test_a_mistake_is_told_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        parse_lag(text, 4)
    assert words in str(error.value)


def test_one_model_is_one_run_however_it_was_typed() -> None:
    def plan_ids(lag: str) -> list[tuple[str, str, str]]:
        found = plan(sweep_request(env="bit-chain", algo="seq_is", k="4", lag=lag, seeds="1"))
        return [(run.run_id, run.spec.lag, found.name) for run in found.runs]

    assert plan_ids("geometric[decay=0.7]") == plan_ids("geometric:0.70") == plan_ids("geometric:0.7")
    assert plan_ids("geometric:0.7") != plan_ids("geometric:0.8")
    algo = "seq_is,seq_is[lag=geometric[decay=0.7]]"
    runs = plan(sweep_request(env="bit-chain", algo=algo, k="4", seeds="1")).runs
    assert [(run.label, run.spec.lag) for run in runs] == [
        ("seq_is", "uniform"),
        ("seq_is[lag=geometric:0.7]", "geometric:0.7"),
    ]
    with pytest.raises(UserError, match="more than once"):
        plan(sweep_request(env="bit-chain", algo=f"{algo},seq_is[lag=geometric:0.7]", k="4", seeds="1"))


def test_several_lag_models_at_a_time_name_the_way() -> None:
    with pytest.raises(
        UserError, match=r"one lag model at a time; for several in one sweep, ALGO='ppo_clip\[lag=oldest\],"
    ):
        read_lag("oldest,uniform")


@pytest.mark.parametrize("weight", [[0.0] * 4, [1.0, 0.0, -1.0, -2.0], [np.inf] * 4, [1.0], [1.0, np.nan, 1.0, 1.0]])
def test_weights_that_are_no_distribution_are_refused(weight: list[float]) -> None:
    class Broken(DrawnLag):
        name = "broken"

        def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array(weight)

    with pytest.raises(UserError, match=r"LAG=broken.*: weight gives .* for 4 lags; give a finite number of each"):
        Broken().probabilities(8, 4)
