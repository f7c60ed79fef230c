"""The language model: its weights, its passes, its memory, and how a tiny one is made."""
