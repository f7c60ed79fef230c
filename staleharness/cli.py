"""The `staleharness` command: parses its arguments, calls a command of `commands/`, and exits with its code.

`staleharness COMMAND --help` describes each. Exit code 0: success. 1: some runs failed or are missing, or memory ran
out. 2: a user's mistake, one line on stderr. 130: stopped by Ctrl-C; the same command resumes.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import shutil
import sys

from .base.console_log import log_to
from .commands.shared.command_line_parser import parse
from .errors import UserError, lacks_memory

# errors of standard output, which name no file
STREAM_TROUBLE = (errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
OUT_OF_MEMORY = "out of memory; run fewer things at a time (JOBS=1), or on a machine with more"


def main() -> None:
    """Entry point; ends the process with the verb's exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for good)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal lacks become ?
    gc.set_threshold(50_000, 10, 10)  # collection took a tenth of a report, whose figures are many objects
    # Log messages of other packages are plain lines on stderr.
    log_to("stderr")
    try:
        verb, command = parse(sys.argv[1:])
        try:
            code = verb.handle(command)
        except SystemExit as error:  # no verb raises it
            code = _complain(f"a plugin ended the command with SystemExit({error.code!r})")
        sys.stdout.flush()
    except UserError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        code = _complain(OUT_OF_MEMORY, code=1)
    except shutil.Error as error:  # of copytree: a list of (source, target, reason)
        _, target, reason = error.args[0][0]
        code = _complain(f"{target}: {reason}")
    except OSError as error:
        if error.errno == errno.ENOENT and not _working_folder_exists():
            code = _complain("the current folder no longer exists; change to one that does")
        elif error.errno == errno.EMFILE:
            code = _complain("too many open files; run fewer things at a time (JOBS=1), or raise the limit: ulimit -n")
        elif error.errno == errno.ENOMEM:  # for a new process
            code = _complain(OUT_OF_MEMORY, code=1)
        elif error.filename is None and error.errno not in STREAM_TROUBLE:
            raise
        else:
            code = _complain(f"{error.filename or 'standard output'}: {error.strerror}")
    sys.exit(code)


def _working_folder_exists() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _complain(message: str, code: int = 2) -> int:
    """Print a message in one line on stderr, whatever characters are in it; return the exit code."""
    from .base.text import printable

    with contextlib.suppress(OSError):
        print(f"staleharness: {printable(message)}", file=sys.stderr)
    return code
