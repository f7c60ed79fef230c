"""Mismatch models: copies of the policy that sample in its place."""
