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
from typing import Any

from .base.console_log import log_to
from .commands.shared.command_line_parser import parse
from .errors import UserError, lacks_memory, type_and_message

# errors of standard output, which name no file
STREAM_TROUBLE = (errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
MACHINE_TROUBLE = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPIPE),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE),
)
OUT_OF_MEMORY = "out of memory; run fewer things at a time (JOBS=1), or on a machine with more"


def main() -> None:
    """Entry point; ends the process with the verb's exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (for good)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal lacks become ?
            if stream is getattr(sys, f"__{name}__"):
                setattr(sys, name, _without_broken_pipe(stream))
    gc.set_threshold(50_000, 10, 10)  # collection took a tenth of a report, whose figures are many objects
    # Log messages of other packages are plain lines on stderr.
    log_to("stderr")
    try:
        verb, command = parse(sys.argv[1:])
        try:
            code = verb.handle(command)
        except SystemExit as error:  # no verb raises it
            code = _complain(f"a plugin ended the command with SystemExit({error.code!r})")
        except UserError:
            raise
        except Exception as error:
            from .base.plugins import plugin_line

            if _is_machine_trouble(error) or not (place := plugin_line(error, builtin=not isinstance(error, OSError))):
                raise
            code = _complain(f"a plugin raised {type_and_message(error)} ({place})")
        sys.stdout.flush()
    except UserError as error:
        code = _complain(str(error))
    except KeyboardInterrupt:
        code = 130
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


class _Output(io.FileIO):
    """File of a standard stream. When its reader closes the pipe, as `head` does, what is written goes nowhere, and the
    command does the rest of its work."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(data)


def _without_broken_pipe(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    file = _Output(stream.fileno(), "wb", closefd=False)
    buffer = io.BufferedWriter(file) if isinstance(stream.buffer, io.BufferedWriter) else file
    modes = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, **modes)  # type: ignore[arg-type]


def _is_machine_trouble(error: Exception) -> bool:
    """Return whether an error is no plugin's fault, even where it arises in one."""
    number = error.errno if isinstance(error, OSError) else None
    no_folder = number == errno.ENOENT and not _working_folder_exists()
    return lacks_memory(error) or number in MACHINE_TROUBLE or no_folder


def _working_folder_exists() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _complain(message: str, code: int = 2) -> int:
    """Print a message in one line on stderr, whatever characters are in it; return the exit code."""
    from .base.text_formatting import printable

    with contextlib.suppress(OSError):
        print(f"staleharness: {printable(message)}", file=sys.stderr)
    return code
