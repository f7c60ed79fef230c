"""One file, one lag model."""
