"""Tools for plugin authors: small records to try an algorithm on, and the contract of each kind of plugin.

    @parametrize_with_checks([MyIdea])
    def test_my_idea_keeps_the_contract(algorithm, check):
        check(algorithm)

An environment plugin has a contract, too: `parametrize_with_task_checks([MyTask])`, tests of (family, env, check); a
language plugin is checked by `check_language_task(MyTask, "my-task")`, one of binary decisions by `check_chain_task`.
Lag and mismatch models have one as well: `parametrize_with_lag_checks([MyLag(), MyLag(slow=0.5)])` and
`parametrize_with_mismatch_checks([MyMismatch()])`, tests of (model, check). `parametrize_with_checks` takes any kind.

The contract does not know what a method means; add a truth table of a few lines worked out by hand:

    d = decisions(ratio=[[1.0, 1.5]], advantage=[[2.0, 2.0]])
    assert gradient_coefficients(ALGORITHMS["ppo_clip"](), d).tolist() == [[2.0, 0.0]]
"""

from .algorithm_contract import CHECKS, Check, check_algorithm, variants
from .decorator import parametrize_with_checks
from .example_batches import decisions, example_decisions, example_trajectories, gradient_coefficients
from .lag_model_checks import LAG_CHECKS, LagCheck, check_lag_model, parametrize_with_lag_checks
from .mismatch_checks import MISMATCH_CHECKS, MismatchCheck, check_mismatch_model, parametrize_with_mismatch_checks
from .task_checks import (
    TASK_CHECKS,
    TaskCheck,
    check_chain_task,
    check_language_task,
    check_task,
    is_language,
    parametrize_with_task_checks,
)

__all__ = [
    "CHECKS",
    "LAG_CHECKS",
    "MISMATCH_CHECKS",
    "TASK_CHECKS",
    "Check",
    "LagCheck",
    "MismatchCheck",
    "TaskCheck",
    "check_algorithm",
    "check_chain_task",
    "check_lag_model",
    "check_language_task",
    "check_mismatch_model",
    "check_task",
    "decisions",
    "example_decisions",
    "example_trajectories",
    "gradient_coefficients",
    "is_language",
    "parametrize_with_checks",
    "parametrize_with_lag_checks",
    "parametrize_with_mismatch_checks",
    "parametrize_with_task_checks",
    "variants",
]
