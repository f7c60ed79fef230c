"""Foundations without RL: files, plugins, parsing, random streams, text, the machine; the package's version."""

__version__ = "0.4.0"
