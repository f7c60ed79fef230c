"""What the runner `slurm` is made of: options, commands, arrays on disk, and what a node runs."""
