"""The `staleharness` command: it hands its words to one of the verbs in `commands/` and ends with an exit code.

`staleharness COMMAND --help` says what each takes. Exit code 0: all is well. 1: some runs failed or are missing.
2: a mistake in what was asked, one line on stderr. 130: stopped by Ctrl-C; the same command resumes.
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
from .commands.shared.parser import parse
from .errors import UserError, lacks_memory

# of a stream, whose error names no file
STREAM_TROUBLE = (errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """Entry point; ends the process with the verb's exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for good)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our signs gets question marks
    gc.set_threshold(50_000, 10, 10)  # figures are many objects: a tenth of a report went into looking for garbage
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
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        code = _complain("out of memory; run fewer things at a time (JOBS=1), or on a machine with more") - 1
    except shutil.Error as error:  # of a folder that was copied: a list of what went wrong
        _, place, reason = error.args[0][0]
        code = _complain(f"{place}: {reason}")
    except OSError as error:
        if error.errno == errno.ENOENT and not _stands():
            code = _complain("the current folder is no longer there; change to one that is")
        elif error.filename is None and error.errno not in STREAM_TROUBLE:
            raise
        else:
            code = _complain(f"{error.filename or 'standard output'}: {error.strerror}")
    sys.exit(code)


def _stands() -> bool:
    """Return whether the current folder exists."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _complain(words: str) -> int:
    """One line on stderr, whatever is in the words."""
    from .base.text import printable

    with contextlib.suppress(OSError):
        print(f"staleharness: {printable(words)}", file=sys.stderr)
    return 2
