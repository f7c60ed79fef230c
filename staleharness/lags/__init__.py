"""Built-in lag models; each file of this folder registers one or more."""
