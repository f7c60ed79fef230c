"""Contract of every lag model, one check per promise: of models that draw, at several capacities; of models that plan
whole runs, for several demands."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ..base.plugins import summary
from ..errors import UserError
from ..lag import LAGS, Assignment, Draw, LagModel, read_lag
from ..rollout_schedule import NEVER, Demand, Schedule
from ..rollout_schedule_checks import make_schedule
from ..training.version_assignment import validate_assignment, validate_probabilities
from .check_runner import global_generators, parametrize, refusals_fail, run_checks

LagCheck = Callable[[LagModel], None]

CAPACITIES = (1, 2, 5, 16)
PHASES = (0, 1, 4, 7, 40)
SAMPLES = 20_000  # rows of one draw, for an empirical distribution
DRAWS, ROWS = 400, 360  # draws and rows of each, for models whose rows share random numbers
DEMANDS = (
    Demand(phases=30, groups=6, rows=1, length=7, seed=0),
    Demand(phases=12, groups=4, rows=3, length=50, seed=1),
    Demand(phases=1, groups=2, rows=1, length=1, seed=2),
)


def draws_of(model: LagModel, slots: int = 6) -> list[tuple[LagModel, Draw, Assignment]]:
    """Return the model at each capacity that it can work with, draws of rows of seven decisions, and the answers; none
    for a model that plans schedules."""
    if not model.drawn:
        return []
    usable = {k: model.at(k) for k in CAPACITIES if _works(model.at(k), k)}
    assert usable, f"{model.text} works with none of the capacities {CAPACITIES}"
    draws = [(at, Draw(phase, slots, k, 7, 0, (phase,))) for k, at in usable.items() for phase in PHASES]
    return [(at, draw, _assign(at, draw)) for at, draw in draws]


def schedules_of(model: LagModel) -> list[tuple[Demand, Schedule]]:
    """Demands with the model's schedules, at K = 5 if they depend on K; none for a model that draws, and for one whose
    rows follow from the run itself (`real`, `online`). Raises `AssertionError`, with the line by which a run would
    refuse a schedule."""
    if model.drawn or model.real or model.online:
        return []
    with refusals_fail():
        return [(demand, make_schedule(model.at(5).schedule, demand, model.text)) for demand in DEMANDS]


def is_a_listed_model(model: LagModel) -> None:
    """The model is registered under its name, with a docstring, and is a frozen dataclass of plain options."""
    cls = type(model)
    assert cls.name in LAGS and LAGS[cls.name] is cls, "register it with @LAGS.register('name')"
    assert summary(cls) and cls.__doc__ != LagModel.__doc__, "the first docstring line is what `list` shows"
    assert is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hash(model) == hash(pickle.loads(pickle.dumps(model))) and pickle.loads(pickle.dumps(model)) == model


def is_read_as_it_is_written(model: LagModel) -> None:
    """`text` is read as the same model and written as the same text: one model is one run id."""
    repeat = read_lag(model.text)
    assert repeat == model and repeat.text == model.text
    assert not set(model.text) & set(" \n\t"), "white space separates the items of a list"


def assigns_versions_that_the_buffer_holds(model: LagModel) -> None:
    """Whole numbers [slots, segments] in the buffer, not decreasing along a row, none older than `oldest`."""
    for at, draw, answer in draws_of(model):
        oldest, least = at.oldest(draw.phase), answer.versions.min()
        assert oldest <= least, (
            f"assign gives version {least} in phase {draw.phase}, but oldest({draw.phase}) returns {oldest}"
        )


def is_a_function_of_the_question(model: LagModel) -> None:
    """The same draw gives the same assignment, whatever was drawn before, and no global random generator moves."""
    before = global_generators()
    first = draws_of(model)
    fresh = pickle.loads(pickle.dumps(model))
    for _, draw, answer in reversed(first):
        repeat = _assign(fresh.at(draw.capacity), draw)
        source = "take random numbers from draw.generator(), and keep no state"
        for name, value, other in (
            ("versions", answer.versions[:, 0].tolist(), repeat.versions[:, 0].tolist()),
            ("every", answer.every, repeat.every),
            ("ledger", answer.ledger, repeat.ledger),
        ):
            assert value == other, f"the same {draw} got {name}={value} first and {name}={other} later; {source}"
        assert np.array_equal(answer.versions, repeat.versions), f"the same {draw} got other versions later; {source}"
    for demand, plan in schedules_of(model):
        other = fresh.at(5).schedule(demand)  # with the global generators as they are
        for name in (column.name for column in fields(plan)):
            assert np.array_equal(getattr(plan, name), getattr(other, name)), (
                f"two calls of schedule give different {name}; draw from stream(demand.seed, 'lag')"
            )
    assert global_generators() == before, "a global random generator moved; draw from draw.generator()"


def counts_in_the_words_of_the_ledger(model: LagModel) -> None:
    """A ledger has whole numbers of rows, none negative, under the names of `LEDGER`. That of a schedule balances, in
    rows and in decisions: generated is the sum of all the others."""
    draws_of(model)  # checks the ledgers
    schedules_of(model)  # likewise


def draws_as_its_probabilities_say(model: LagModel) -> None:
    """`probabilities` are above 0, sum to 1, and are the shares of rows that begin with each version."""
    for at, draw, answer in draws_of(model, slots=SAMPLES):
        call = f"probabilities({draw.phase}, {draw.capacity})"
        probabilities = at.probabilities(draw.phase, draw.capacity)
        with refusals_fail():
            validate_probabilities(at, draw.phase, draw.capacity, probabilities)
        assert all(p > 0.0 for p in probabilities.values()), f"{call} returns versions of probability 0; leave them out"
        total = sum(probabilities.values())
        assert abs(total - 1.0) < 1e-9, f"{call} adds up to {total!r}, not 1"
        if _deviation(probabilities, [answer], call) is None:
            continue
        draws = [replace(draw, slots=ROWS, seed=1 + i, key=(draw.phase, i)) for i in range(DRAWS)]  # rows may share one
        problem = _deviation(probabilities, [_assign(at, request) for request in draws], call)
        assert problem is None, problem


def _deviation(probabilities: Mapping[int, float], assignments: Sequence[Assignment], call: str) -> str | None:
    """Description of a version with which more or fewer rows begin than its probability and chance allow; None without
    one. Rows of a draw may depend on each other: their number is divided by the design effect, the variance of the
    shares between draws over that of independent rows. Raises `AssertionError` for a version of probability 0."""
    starts, p = np.array([assignment.starts for assignment in assignments]), np.array([*probabilities.values()])
    if impossible := sorted({*np.unique(starts).tolist()} - {*probabilities}):
        raise AssertionError(f"assign gives version {impossible[0]}, which {call} leaves out")
    shares = np.array([(starts == version).mean(axis=1) for version in probabilities])  # [versions, draws]
    draws, rows = starts.shape
    variance = p * (1.0 - p)
    between = shares.var(axis=1, ddof=1).sum() if draws > 1 else 0.0
    effect = min(max(1.0, between * rows / max(variance.sum(), 1e-12)), rows)
    n = draws * rows / effect
    mean = shares.mean(axis=1)
    excess = np.abs(mean - p) - 5.0 * (np.sqrt(variance / n) + 1.0 / n)
    worst = int(excess.argmax())
    if excess[worst] <= 0.0:
        return None
    version, text = [*probabilities][worst], f"over {draws} draws {mean[worst]:.3f} of the rows begin with"
    return f"{text} version {version}, where {call} gives {p[worst]:.3g}"


def schedules_rows_that_a_run_can_be_made_of(model: LagModel) -> None:
    """Each phase has as many groups as are asked for, of versions that exist by then; rows of a group are side by side;
    each actor's groups are counted from 0; segments are in order, none beyond the end of its row."""
    for demand, plan in schedules_of(model):
        assert len(plan) % demand.rows == 0, f"{len(plan)} rows are not whole groups of {demand.rows}"
        groups = plan.group.reshape(-1, demand.rows)
        assert (groups == np.arange(len(groups))[:, None]).all(), "groups are numbered as they begin, from 0"
        for column in (plan.actor, plan.nth):
            assert (column.reshape(groups.shape) == column[:: demand.rows, None]).all(), (
                "one actor generates all rows of a group, at one time"
            )
        order = np.lexsort((plan.group, plan.actor))
        falls = (np.diff(plan.nth[order]) < 0) & (np.diff(plan.actor[order]) == 0)
        assert not falls.any(), "each actor's groups are counted in the order in which they begin"
        is_short = (plan.phase != NEVER) & (plan.lengths < demand.length)
        assert not is_short.any(), f"a row that is trained on is whole: its last segment ends at {demand.length}"


LAG_CHECKS: tuple[LagCheck, ...] = (
    is_a_listed_model,
    is_read_as_it_is_written,
    assigns_versions_that_the_buffer_holds,
    is_a_function_of_the_question,
    counts_in_the_words_of_the_ledger,
    draws_as_its_probabilities_say,
    schedules_rows_that_a_run_can_be_made_of,
)


def check_lag_model(model: LagModel) -> None:
    """Run every check. Raises `AssertionError` that names the model and the check."""
    run_checks(LAG_CHECKS, model.text, model)


def parametrize_with_lag_checks(models: Iterable[LagModel]) -> Any:
    """A pytest decorator: one test `(model, check)` for each check on each model."""
    return parametrize("model", [(model.text, model) for model in models], LAG_CHECKS)


def _assign(model: LagModel, draw: Draw) -> Assignment:
    """Return the answer to a draw. Raises `AssertionError`, with the line by which a run would refuse it."""
    with refusals_fail():
        return validate_assignment(model, draw, model.assign(draw))


def _works(model: LagModel, capacity: int) -> bool:
    try:
        model.check(capacity)
    except UserError:
        return False
    return True
