"""A table of logits as a policy over bits."""

from __future__ import annotations

import numpy as np
import torch

from staleharness.chain.simulation import BitPolicy


def test_a_table_of_logits_equals_a_bernoulli_distribution() -> None:
    policy = BitPolicy(3, 0.7)
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([0.7, -1.2, 0.1]))
    version = policy.snapshot(0, 0)
    with torch.no_grad():
        policy.logits.add_(1.0)
    later = policy.snapshot(1, 1)
    bits, mask = torch.tensor([[1, 0, 1], [0, 0, 1]]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    none = torch.zeros(2, 1, dtype=torch.int64)
    with policy.acting([version, later], np.array([1, 0])) as forward:
        acted = policy.score(none, none, bits, mask, forward, norm=True)
    for row, logits in enumerate((later.tensors["logits"], version.tensors["logits"])):
        of_bits = torch.distributions.Bernoulli(logits=logits)
        torch.testing.assert_close(acted.logp[row], of_bits.log_prob(bits[row].float()) * mask[row])
        assert acted.entropy is not None and acted.norm is not None
        torch.testing.assert_close(acted.entropy[row], of_bits.entropy() * mask[row])
        p = of_bits.probs
        torch.testing.assert_close(acted.norm[row], (p**2 + (1 - p) ** 2) * mask[row])
