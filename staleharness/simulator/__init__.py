"""What all kinds of task share: the loop, versions, and what is said of a phase."""
