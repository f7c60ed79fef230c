"""What is on disk: runs, bundles, studies."""
