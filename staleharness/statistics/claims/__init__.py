"""Claims of papers, part by part, tested on stored runs: tests, verdicts, and numbers quoted in texts."""
