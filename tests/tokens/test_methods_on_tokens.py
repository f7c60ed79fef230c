"""What a method takes over a completion or the minibatch is of all of it, however it is cut to fit in memory."""

from __future__ import annotations

import pytest
from rounds import Policies, close, gradients


@pytest.mark.parametrize("name", ["gspo", "m2po", "mis_seq", "p3o"])
def test_the_gradient_is_the_same_in_pieces(policy: Policies, name: str) -> None:
    given = {"algorithm": name, "mask_truncated": True}
    assert close(gradients(policy, **given), gradients(policy, micro_batch=1, **given))
