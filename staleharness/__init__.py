"""Policy lag as a controlled, reproducible variable."""

__version__ = "0.1.0"
