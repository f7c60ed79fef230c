"""`staleharness new`: a working plugin file to start from."""

from __future__ import annotations

import importlib
import keyword
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UserError
from .shared.arguments import option, positional


@dataclass(frozen=True)
class Template:
    """Plugin file to start from, of one kind.

    In the text, {name} is the plugin's name as typed, {cls} its class, {title} its name in words.
    """

    what: str  # with its article
    registry: str  # module:name, of the package
    folder: str  # of a checkout, where its plugins lie
    text: str
    flags: str  # of a sweep that tries it
    imports: tuple[str, ...]  # classes that the text imports; a new class must not hide one


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

TEMPLATES = {
    "algorithm": Template(
        "an algorithm",
        "staleharness.algorithm:ALGORITHMS",
        "algorithms",
        ALGORITHM,
        "--env Hopper --algo {name}",
        ("Algorithm", "Decisions", "PolicyLoss"),
    ),
    "env": Template(
        "an environment family",
        "staleharness.task:ENVS",
        "envs",
        ENVIRONMENT,
        "--algo ppo_clip --env {cls}",
        ("ControlTask",),
    ),
    "lag": Template(
        "a lag model",
        "staleharness.lag:LAGS",
        "lags",
        LAG,
        "--env Hopper --algo ppo_clip --lag {name}",
        ("Assignment", "Draw", "LagModel"),
    ),
}


@dataclass(frozen=True)
class Command:
    """Write a working plugin file to start from."""

    kind: Annotated[str, positional("|".join(TEMPLATES))]
    """Kind of plugin to write."""
    name: Annotated[str, positional("NAME")]
    """Name of the plugin, like my_idea."""
    folder: Annotated[str | None, option("FOLDER")] = None
    """Folder for the file; by default the current one, and inside a checkout its plugin folder."""


def handle(command: Command) -> int:
    from ..base.plugins import builtin_folder

    path = write(command.kind, command.name, command.folder)
    template = TEMPLATES[command.kind]
    print(f"wrote {path}")
    builtin = path.resolve().parent == builtin_folder(template.folder).resolve()
    plugin = "" if builtin else f" --plugin {shlex.quote(str(path))}"
    flags = template.flags.format(name=command.name, cls=_class_of(command.name))
    print(f"try: staleharness sweep {flags} --k 8{plugin}")
    return 0


def write(kind: str, name: str, folder: str | None) -> Path:
    """Write `<folder>/<name>.py` and return its path. Raises `UserError`; an existing file is never touched."""
    from ..base.files import user_path

    if kind not in TEMPLATES:
        *first, last = (f"`new {kind} NAME`" for kind in TEMPLATES)
        raise UserError(f"new {kind!r}: give {', '.join(first)} or {last}")
    template, cls = TEMPLATES[kind], _class_of(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]{,60}", name, re.ASCII) or keyword.iskeyword(name):
        raise UserError(f"NAME={name!r} is not a plugin name; use lower-case letters, digits and _, like my_idea")
    if keyword.iskeyword(cls) or any(cls in t.imports for t in TEMPLATES.values()):
        raise UserError(f"NAME={name!r} would be the class {cls}, which means something else; give another name")
    _refuse_taken(kind, template, name, cls)
    home = user_path(folder) if folder is not None else _home(template)
    path = home / f"{name}.py"
    if path.exists():
        raise UserError(f"{path} exists already; give another name or FOLDER")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(template.text.format(name=name, cls=cls, title=name.replace("_", " ").capitalize()))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _class_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _home(template: Template) -> Path:
    """The plugin folder of the checkout for who stands in it; elsewhere the current folder."""
    from ..base.plugins import builtin_folder

    checkout, folder = Path(__file__).resolve().parents[2], Path.cwd().resolve()
    inside = (checkout / "pyproject.toml").is_file() and folder.is_relative_to(checkout)
    return builtin_folder(template.folder) if inside else folder


def _refuse_taken(kind: str, template: Template, name: str, cls: str) -> None:
    from ..base.plugins import Registry, source_file
    from ..task import all_families

    module, _, attribute = template.registry.partition(":")
    registry: Registry[type] = getattr(importlib.import_module(module), attribute)
    if name in registry:
        raise UserError(f"{template.what} called {name!r} exists already in {source_file(registry[name])}")
    for family in sorted(all_families(), key=lambda family: family.fallback) if kind == "env" else ():
        if family.find(cls) or family.find(f"{cls}-v0"):
            raise UserError(f"an environment called {cls!r} exists already in {source_file(family)}")
