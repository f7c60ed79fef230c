"""Parts of the Slurm runner: commands, job arrays on disk, task states, and the program that a node runs."""
