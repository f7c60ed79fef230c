"""Language: prompts with verifiable answers, and a causal language model."""
