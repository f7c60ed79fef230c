"""Every method that needs nothing a task of completions lacks trains on completions, whole or in pieces."""

from __future__ import annotations

import math

import pytest
from test_token_learner import PHASE, Policies, close, gradients, learner, round_of

from staleharness.algorithm import ALGORITHMS


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not ALGORITHMS[name].needs])
def test_a_method_trains_on_completions_and_reports_shares(policy: Policies, name: str) -> None:
    made = learner(policy, name, minibatches=2, mask_truncated=True)
    report, _ = made.train(round_of(made.policy, drift=0.05), PHASE)
    assert all(math.isfinite(x) for x in report.values() if isinstance(x, float))
    assert 0.0 <= report["clipped"] <= 1.0
    for mechanism in {"clipped", "truncated", "masked", "vetoed"}:
        assert 0.0 <= report.get(f"algorithm/{mechanism}", 0.0) <= 1.0


@pytest.mark.parametrize("name", ["gspo", "m2po", "mis_seq", "p3o"])
def test_what_is_of_a_completion_or_the_minibatch_does_not_change_in_pieces(
    policy: Policies, name: str
) -> None:
    given = {"algorithm": name, "mask_truncated": True}
    assert close(gradients(policy, **given), gradients(policy, micro_batch=1, **given))
