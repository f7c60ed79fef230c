"""From a question to published runs: plan, workers, checkpoints."""
