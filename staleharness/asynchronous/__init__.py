"""Actors and a learner in real time: processes that really run at once, and the trace that they leave.

`board`: the newest weights, in shared memory. `actor`: what runs in an actor's process. `tally`: what it counts of
itself, in shared memory. `fleet`: the processes and the bounded queue between them and the learner. `recorder`: what
became of each group, as a trace. What a group is, and how one is made, is for the kind of task to say.
"""
