"""One file = one lag model, found by looking in this folder."""
