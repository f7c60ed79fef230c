"""StaleBench: a fixed protocol per track, the place of stored runs in it, and the table of all methods."""
