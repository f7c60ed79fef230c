"""One function, one figure."""
