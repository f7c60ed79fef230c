"""`python -m staleharness` is the `staleharness` command."""

from .cli import main

if __name__ == "__main__":
    main()
