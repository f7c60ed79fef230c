"""Where lag comes from: a simulation of rollout workers, queue, trainer and weight sync, in discrete events.

`settings` says what a pipeline is, `presets` names some. The parts, one file each, in the order in which a row passes
them: `work` (how long rows are), `admission` (may one begin?), `slots` (generation), `finished` (the queue), `trainer`,
`sync` (weights on their way to the slots), `faults`. `simulation` lets them meet in time, and `log` writes it down.
What is read from the log: `lag`, `ledger`, `use` (who works, who waits, what binds), `summary` of all, `trace`.
No torch, no task, no learning.
"""
