"""Plugin files to start from, one template per kind of plugin; `staleharness new` fills them in.

In a template, {name} is the plugin's name as typed, {cls} its class, {title} its name in words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """A kind of plugin that can be begun with `new`."""

    what: str  # with its article
    registry: str  # module:name, of the package
    folder: str  # of a checkout, where its plugins lie
    text: str
    flags: str  # of a sweep that tries it
    imported: tuple[str, ...]  # classes that the text imports; a new class must not hide one


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
