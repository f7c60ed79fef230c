"""Version of the package; in a file of its own, so that every package may import it."""

__version__ = "0.4.0"
