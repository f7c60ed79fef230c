"""One file = one place where runs are carried out (`running.runner.Runner`); it defines `make(demand)`."""
