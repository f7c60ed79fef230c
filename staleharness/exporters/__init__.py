"""Stored runs for other tools."""
