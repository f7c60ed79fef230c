"""Statistics of a method over a completion or minibatch do not depend on micro-batches."""

from __future__ import annotations

import pytest
from rounds import Policies, close, gradients


@pytest.mark.parametrize("name", ["gspo", "m2po", "mis_seq", "p3o"])
def test_the_gradient_is_the_same_in_pieces(policy: Policies, name: str) -> None:
    given = {"algorithm": name, "mask_truncated": True}
    assert close(gradients(policy, **given), gradients(policy, micro_batch=1, **given))
