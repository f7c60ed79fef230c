"""Environments of plugin files, loaded on import: a worker's fork server imports this module, so that processes of an
`AsyncVectorEnv` know their classes and ids."""

from __future__ import annotations

from ..task import ENVS

list(ENVS)
