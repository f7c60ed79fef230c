"""Chains of binary decisions: the lag of policies and the weights of stale data, with nothing else in the way."""
