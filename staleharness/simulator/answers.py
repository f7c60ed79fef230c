"""What a method answers when it is asked for its loss, held against what it was asked for."""

from __future__ import annotations

from pathlib import Path

from ..algorithm import Algorithm
from ..base.plugins import source_file
from ..batch import Decisions, PolicyLoss
from ..errors import UserError

# A field of `Decisions` that may be None -> what a method that cannot do without it has among its `needs`.
DECLARED_BY = {
    "group": "groups",
    "outcome": "groups",
    "logit_norm": "logit_norm",
    "reference_logp": "reference",
    "analytic_kl": "closed_form",
}


def loss_of(algorithm: Algorithm, decisions: Decisions) -> PolicyLoss:
    """What the method answers: a loss of each decision [R, T], and diagnostics of the same shape or numbers []. Raises
    `UserError` for anything else, which could be spread over the decisions unnoticed."""
    from torch import Tensor

    try:
        answer, shape = algorithm.policy_loss(decisions), decisions.mask.shape
    except (TypeError, AttributeError) as error:  # what None brings about
        if (said := _undeclared(algorithm, decisions, error)) is not None:
            raise said from error
        raise
    if not isinstance(answer, PolicyLoss):
        raise UserError(f"{algorithm.name}: policy_loss returns a {type(answer).__name__}, not a PolicyLoss")
    for name, x in (("loss", answer.loss), *answer.diagnostics.items()):
        known = (shape,) if name == "loss" else (shape, ())
        if not isinstance(x, Tensor) or x.shape not in known:
            found = f"of shape {list(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise UserError(
                f"{algorithm.name}: the {name} that policy_loss returns is {found}; give a tensor with a number of "
                f"each decision, here {list(shape)}"
            )
    return answer


def _undeclared(algorithm: Algorithm, decisions: Decisions, error: Exception) -> UserError | None:
    """The line to say where the method's file names a field that is None here."""
    text = Path(source_file(type(algorithm))).read_text(encoding="utf-8")
    absent = [field for field in DECLARED_BY if getattr(decisions, field) is None and f".{field}" in text]
    if not absent:
        return None
    return UserError(
        f"{algorithm.name}: policy_loss uses decisions.{absent[0]}, which is None here ({type(error).__name__}: "
        f"{error}); declare needs = frozenset({{{DECLARED_BY[absent[0]]!r}}}), or do without where it is None"
    )
