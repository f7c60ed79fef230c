"""Control: a policy acts in a vector of gymnasium environments."""
