"""The version of the package, where every room may read it."""

__version__ = "0.3.0"
