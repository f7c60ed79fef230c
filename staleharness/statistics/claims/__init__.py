"""What a paper claims, part by part, held against stored runs: tests, verdicts, and numbers quoted in texts."""
