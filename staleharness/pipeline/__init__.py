"""Discrete-event simulation of an asynchronous RL pipeline: rollout workers, queue, trainer and weight sync.

`pipeline_settings` defines a pipeline and presets. The parts, in the order in which a row passes them:
`workload_sampler` (lengths of rows, from `distributions`), `admission_and_queue` (admission, and the queues of finished
groups and batches), `rollout_slots` (generation, with `row_progress` and `worker_failures`), `trainer_and_sync`
(trainer, weight transfers). `event_simulation` runs them in time, and `pipeline_event_log` records them.
`pipeline_rows` (ledger, schedule, trace) and `pipeline_summary` are computed from the record. The package uses no torch
and no task, and trains nothing.
"""
