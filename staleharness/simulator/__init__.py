"""What all kinds of task share: the loop, versions, and what is reported of a phase."""
