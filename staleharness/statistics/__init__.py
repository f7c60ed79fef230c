"""From stored runs to numbers with intervals."""
