"""Learning from rows of tokens, whatever the policy behind them."""
