"""Results on disk: runs, bundles of runs, and the studies that ask for them."""
