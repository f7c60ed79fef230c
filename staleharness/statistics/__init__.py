"""Estimates with intervals from stored runs."""
