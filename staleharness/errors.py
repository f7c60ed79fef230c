"""Errors of the user and of a run, and helpers that word error lines."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """Mistake of the user; the message is one line: what is wrong, where, what would be right.

    Raised while a command is checked, nothing has been written, and the command line exits with 2. A plugin's fault
    may raise it in the middle of a run, which then counts as failed.
    """


class Diverged(RuntimeError):
    """A loss, parameter, log-probability, observation or reward stopped being finite."""


class OOM(RuntimeError):
    """Out of GPU memory; the message names the setting that takes less."""


class ActorsNotStarted(RuntimeError):
    """The server that starts the actors of a run was killed several times in a row."""


class Changed(RuntimeError):
    """The plugin files are no longer those from which the run's id was computed."""


class Interrupted(RuntimeError):
    """The run was asked to stop; its checkpoint is on disk and the same command resumes from there."""


def one_line(text: object) -> str:
    """Return a text, such as an error's, without line breaks or repeated blanks."""
    return " ".join(str(text).split())


def type_and_message(error: BaseException) -> str:
    """`ValueError: message` in one line."""
    return one_line(f"{type(error).__name__}: {str(error) or 'no message'}")


def lacks_memory(error: BaseException) -> bool:
    """Return whether Python, torch (CPU or GPU) or C++ ran out of memory."""
    words = "out of memory", "allocate memory", "bad_alloc"
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in words)


def missing_extra(feature: str, extra: str) -> UserError:
    """Error for a feature whose optional dependencies are not installed."""
    return UserError(
        f"{feature} needs the extra {extra}: make setup EXTRAS={extra}, or pip install 'staleharness[{extra}]'"
    )


def nearest(name: str, valid: Iterable[str], others: Iterable[str] = ()) -> str:
    """End of an error line: the nearest name if one is close, otherwise all of them.

    valid: the valid names. others: further candidates that are not listed."""
    names = sorted(valid)
    by_lower = {n.lower(): n for n in (*others, *names)}
    # names of settings in other libraries, each with its name here
    foreign = tomllib.loads(Path(__file__).with_name("foreign_names.toml").read_text(encoding="utf-8"))
    translation = foreign.get(name.lower(), "")
    if translation in by_lower:
        return f"did you mean {translation!r}?"
    completions = [n for n in names if len(name) > 1 and n.lower().startswith(name.lower())]
    if completions:
        return f"did you mean {' or '.join(map(repr, completions[:3]))}?"
    cutoff = 0.5 if len(name) < 4 else 0.6  # of two letters one may be right
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return "known: " + ", ".join(names) if names else "none is known"


def shorten(text: str, length: int = 60) -> str:
    """Text of at most `length` characters, the cut marked with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"
