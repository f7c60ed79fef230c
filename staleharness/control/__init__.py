"""Control: vectors of gymnasium environments, a Gaussian policy, and a critic."""
