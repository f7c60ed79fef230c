"""Policy lag as a controlled, reproducible variable.

    import staleharness as sh

    results = sh.sweep(env="Hopper", k=[1, 8], algo=["ppo_clip", "vaco"], seeds=3)
    for phase in sh.simulate(env="Hopper", algo="vaco", k=8): ...
    sh.load("results/reference/staleness_halfcheetah").table()
    sh.draw("score_against_capacity", results), sh.draw_panel("learning_curves", results, ax, k=8)
    sh.sheet("risk_table", results)
    sh.list_algorithms(), sh.list_envs(), sh.list_lags(), sh.list_mismatches()

Each name is loaded when it is first used: importing staleharness loads no library.
"""

from typing import TYPE_CHECKING, Any

from .base import __version__ as __version__

if TYPE_CHECKING:
    from .api import (
        RunsFailed,
        benchmark,
        list_algorithms,
        list_envs,
        list_lags,
        list_mismatches,
        load,
        plan,
        simulate,
        sweep,
    )
    from .errors import UserError
    from .figures.registry import draw, draw_panel, sheet

__all__ = [
    "RunsFailed",
    "UserError",
    "benchmark",
    "draw",
    "draw_panel",
    "list_algorithms",
    "list_envs",
    "list_lags",
    "list_mismatches",
    "load",
    "plan",
    "sheet",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # by name: whoever asks for `__version__` alone imports nothing else

    module = ".figures.registry" if name in ("draw", "draw_panel", "sheet") else ".api"
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
