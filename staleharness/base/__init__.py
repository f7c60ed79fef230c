"""Foundations without RL: files, plugins, parsing, random streams, text, the machine."""
