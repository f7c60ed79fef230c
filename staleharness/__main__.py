"""The `staleharness` command, also as `python -m staleharness`."""

import sys


def main() -> None:
    """Entry point. A Ctrl-C while the command is still being loaded ends it like any later one."""
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
