"""Actors and a learner in real time: processes that run at once, and the trace that they leave.

`shared_weights`: the newest weights, in shared memory. `actor_process`: an actor's process. `actor_pool`: the processes
and the bounded queue between them and the learner. `group_lifecycle`: the fate of each group, as a trace.
`actor_rollout_source`: the pool as a source of rows. The kind of task defines what a group is and how one is made.
"""
