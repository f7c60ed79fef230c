"""Chains of binary decisions with one outcome at the end."""
