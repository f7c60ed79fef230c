"""Shared by all kinds of task: the loop, versions, and what is reported of a phase."""
