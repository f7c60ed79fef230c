"""The two ways a run can go wrong: the user's mistake, and a training that failed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for; its message is one line: what, where, what would be right.

    The command line prints the line and exits with 2. Nothing has been written when it is raised.
    """


class Diverged(RuntimeError):
    """A loss, a parameter or a log-probability stopped being finite, or what an environment answers."""


class OOM(RuntimeError):
    """The GPU's memory ran out; the message names the setting that takes less."""


class ActorsNotStarted(RuntimeError):
    """The server that starts the actors of a run was killed, again and again."""


class Changed(RuntimeError):
    """The code that a run would be made with is no longer the code that its id was computed from."""


class Interrupted(RuntimeError):
    """The run was asked to stop; its checkpoint is on disk and the same command resumes from there."""


def lacks_memory(error: BaseException) -> bool:
    """Tell lack of memory, of Python, torch (CPU or GPU) or C++, from any other error."""
    words = "out of memory", "allocate memory", "bad_alloc"
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in words)


def missing_extra(what: str, extra: str) -> UserError:
    """The error for what needs an optional part of the package that is not installed."""
    return UserError(
        f"{what} needs the extra {extra}: make setup EXTRAS={extra}, or pip install 'staleharness[{extra}]'"
    )


# What other libraries call a setting (Stable-Baselines3, CleanRL, TRL, RLlib) -> what it is called here.
ELSEWHERE = {
    "lr": "learning_rate",
    "gamma": "discount",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "n_envs": "num_envs",
    "n_steps": "num_steps",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "update_epochs": "epochs",
    "num_minibatches": "minibatches",
    "anneal_lr": "anneal_learning_rate",
    "norm_adv": "normalise_advantage",
    "normalize_advantage": "normalise_advantage",
    "total_timesteps": "steps",
    "k": "capacity",  # as the command line says, and Python
    "n": "forward",
    "clip_range": "clip",
    "clip_coef": "clip",
    "epsilon": "clip",
    "eps": "adam_epsilon",
    "temperature": "sampling_temperature",
}


def nearest(name: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """The end of an error line: the nearest known name if one is close, otherwise all of them. `others` may be meant
    too, and are not listed."""
    names = sorted(known)
    by_lower = {n.lower(): n for n in (*others, *names)}
    here = ELSEWHERE.get(name.lower(), "")
    if here in by_lower:
        return f"did you mean {here!r}?"
    begun = [n for n in names if len(name) > 1 and n.lower().startswith(name.lower())]
    if begun:
        return f"did you mean {' or '.join(map(repr, begun[:3]))}?"
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    return "known: " + ", ".join(names) if names else "none is known"


def shortened(text: str, length: int = 60) -> str:
    """What the user typed, cut where it would fill the screen."""
    return text if len(text) <= length else text[: length - 1] + "…"
