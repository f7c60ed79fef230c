"""`staleharness new`: a working plugin file to start from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from ..base.files import user_path
from ..base.plugins import builtin_folder
from ..errors import UserError

ALGORITHM = '''"""{title}: one line on what it does; `staleharness list` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("{name}")
@dataclass(frozen=True)
class {cls}(Algorithm):
    """w·A with w = π_θ/μ truncated at `cap`: a starting point, put your idea here."""

    paper = "unpublished"

    cap: float = 1.2  # largest importance ratio that still counts

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        weight = ratio.clamp(max=self.cap)
        return PolicyLoss(-weight * d.advantage, {{"weight": weight.detach()}})
'''

ENVIRONMENT = '''"""{title}: one line on the task; `staleharness list` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from staleharness.control.task import ControlTask
from staleharness.task import ENVS

if TYPE_CHECKING:
    import gymnasium


@ENVS.register("{name}")
class {cls}(ControlTask):
    """A point on a line that has to stay near the origin: a starting point, put your task here."""

    ids: ClassVar[dict[str, str]] = {{"{cls}-v0": "a point on a line, pushed by one force"}}
    aliases: ClassVar[dict[str, str]] = {{"{cls}": "{cls}-v0"}}

    def make(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        import gymnasium
        import numpy as np

        from staleharness.control.replay_state import ReplayState

        class Point(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
            action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.state = self.np_random.uniform(-1.0, 1.0, size=2)
                return self.state.copy(), {{}}

            def step(self, action):
                position, velocity = self.state
                velocity = 0.95 * velocity + 0.1 * float(action[0])
                self.state = np.array([position + 0.1 * velocity, velocity])
                return self.state.copy(), -float(self.state[0] ** 2), bool(abs(self.state[0]) > 3.0), False, {{}}

        def one() -> gymnasium.Env:
            return gymnasium.wrappers.TimeLimit(Point(), 200)

        mode = gymnasium.vector.AutoresetMode.DISABLED
        return ReplayState(gymnasium.vector.SyncVectorEnv([one] * num_envs, autoreset_mode=mode))
'''

LAG = '''"""{title}: one line on what it models; `staleharness list` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("{name}")
@dataclass(frozen=True)
class {cls}(LagModel):
    """The newest version, but for a share `slow` of the rows, which get the oldest: put your idea here."""

    paper = "unpublished"

    slow: float = 0.25  # share of rows, expected

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("slow", 0 < self.slow < 1, "above 0 and below 1")

    def assign(self, draw: Draw) -> Assignment:
        late = draw.generator().random(draw.slots) < self.slow
        return keep(draw.phase - late * (len(draw.held) - 1))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        oldest = held(phase, capacity)[0]
        return {{phase: 1.0}} if oldest == phase else {{phase: 1.0 - self.slow, oldest: self.slow}}
'''

TEMPLATES = {"algorithm": ("algorithms", ALGORITHM), "env": ("envs", ENVIRONMENT), "lag": ("lags", LAG)}
IMPORTED = (
    "Algorithm",
    "Decisions",
    "PolicyLoss",
    "ControlTask",
    "Assignment",
    "Draw",
    "LagModel",
)  # by the templates; a new class must not hide them


def write(kind: str, name: str, folder: str | None) -> Path:
    """Write `<folder>/<name>.py` and return its path. Raises `UserError`; an existing file is never touched."""
    if kind not in TEMPLATES:
        raise UserError(f"new {kind!r}: give `new algorithm NAME`, `new env NAME` or `new lag NAME`")
    plural, template = TEMPLATES[kind]
    cls = "".join(part.capitalize() for part in name.split("_"))
    if not re.fullmatch(r"[a-z][a-z0-9_]{,60}", name, re.ASCII) or keyword.iskeyword(name):
        raise UserError(
            f"NAME={name!r} is not a plugin name; use lower-case letters, digits and _, like my_idea"
        )
    if keyword.iskeyword(cls) or cls in IMPORTED:
        raise UserError(
            f"NAME={name!r} would be the class {cls}, which means something else; give another name"
        )
    _refuse_taken(kind, name, cls)
    home = user_path(folder) if folder is not None else _home(plural)
    path = home / f"{name}.py"
    if path.exists():
        raise UserError(f"{path} exists already; give another name or FOLDER")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with open(path, "x") as file:
            file.write(template.format(name=name, cls=cls, title=name.replace("_", " ").capitalize()))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _home(plural: str) -> Path:
    """The plugin folder of the checkout; in an installed package, the current folder."""
    folder = builtin_folder(plural)
    return folder if folder.parent.name != "_builtin" else Path.cwd()


def _refuse_taken(kind: str, name: str, cls: str) -> None:
    from ..algorithm import ALGORITHMS
    from ..base.plugins import source_file
    from ..lag import LAGS
    from ..task import ENVS, all_families

    if kind == "algorithm" and name in ALGORITHMS:
        raise UserError(f"an algorithm called {name!r} exists already in {source_file(ALGORITHMS[name])}")
    if kind == "env" and name in ENVS:
        raise UserError(f"an environment family called {name!r} exists already in {source_file(ENVS[name])}")
    if kind == "lag" and name in LAGS:
        raise UserError(f"a lag model called {name!r} exists already in {source_file(LAGS[name])}")
    for family in all_families() if kind == "env" else ():
        if family.find(cls) or family.find(f"{cls}-v0"):
            raise UserError(f"an environment called {cls!r} exists already in {source_file(family)}")
