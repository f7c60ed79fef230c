"""Discrete-event simulation of an asynchronous RL pipeline: rollout workers, queue, trainer and weight sync.

`pipeline_settings` defines a pipeline and presets. The parts, in the order in which a row passes them:
`workload_sampler` (lengths of rows, from `distributions`), `admission_and_queue` (admission, and the queues of finished
groups and batches), `rollout_slots` (generation), `trainer_and_sync` (trainer, weight transfers), `worker_failures`.
`event_simulation` runs them in time and `pipeline_record` records them. From the record follow `pipeline_summary`,
`row_schedule_and_ledger` and `pipeline_trace`; `cap_comparison` varies the cap. No torch, no task, no learning.
"""
