"""Reports and the gallery."""
