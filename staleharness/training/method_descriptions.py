"""Facts about a method: its entry in `methods.toml` next to its file, its cost, and warnings of mechanisms that cannot
act under a run's settings and of losses that ignore its mismatch."""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..algorithm import Algorithm, defines
from ..base.options import active_options
from ..base.plugins import source_file, source_hash, summary
from ..base.typed_values import build
from ..batch import Decisions
from ..errors import UserError
from ..mismatch import NONE
from ..spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

OTHER = "other"  # family of methods without an entry
ANCHORS = {
    "behaviour": "the policy that acted",
    "recompute": "the learner at the start of the phase",
    "ewma": "a moving average of the learner",
}


@dataclass(frozen=True)
class MethodEntry:
    """A method's entry in `methods.toml`, which explains the fields."""

    family: str = OTHER
    level: str = ""
    transform: str = ""
    trust_region: str = ""
    anchor: str = ""
    touches: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    traps: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExtraPasses:
    """Forward passes over the data besides those that any method needs."""

    per_phase: int  # over all data of the phase
    per_step: int  # over a minibatch, at every gradient step
    by_row: bool  # whether completions are processed one by one

    def __str__(self) -> str:
        counts = {"phase": self.per_phase, "gradient step": self.per_step}
        parts = [f"{n} forward per {unit}" for unit, n in counts.items() if n]
        return ", ".join(parts + ["completions one by one"] * self.by_row) or "none"


def families(cls: type[Algorithm]) -> dict[str, str]:
    """Family -> what it does with a stale decision, for the folder that holds the method's file."""
    return dict(_read(_file(cls)).get("families", {}))


def entry_of(cls: type[Algorithm]) -> MethodEntry:
    """The method's entry; without one, the family `other` and what can be derived. Raises `UserError` for a bad one."""
    file = _file(cls)
    table = dict(_read(file).get("methods", {})).get(cls.name)
    if table is None:
        proximal = cls().proximal
        return MethodEntry(anchor="" if proximal == "behaviour" else f"π_prox, {ANCHORS[proximal]}")
    texts = {key: text for key, text in dict(_read(file).get("options", {})).items() if key in cls.hyper_parameters()}
    entry = build(
        MethodEntry, {**table, "options": {**texts, **table.get("options", {})}}, f"{file}: methods.{cls.name}"
    )
    if entry.family not in families(cls):
        names = ", ".join(families(cls)) or "none"
        raise UserError(f"{file}: methods.{cls.name} is of the family {entry.family!r}; the file has: {names}")
    return entry


def extra_passes(algorithm: Algorithm, spec: RunSpec | None = None) -> ExtraPasses:
    """Return the forward passes that the method needs beyond the one that its gradient goes through. Without a run's
    settings: on tokens, with several gradient steps per phase. On control the learner evaluates a phase's data at
    its start for every method, so that pass does not count."""
    own_targets = defines(algorithm, "targets") and algorithm.realign_every != "step"
    several_steps = spec is None or spec.epochs * spec.minibatches > 1
    # a method anchors on the learner at the start of the phase, or computes its targets under it
    start = algorithm.proximal == "recompute" or (own_targets and several_steps)
    epochs = spec.epochs if spec is not None and start and algorithm.realign_every == "epoch" else 1
    return ExtraPasses(
        per_phase=0 if spec is not None and spec.scores_start else int(start) * epochs,
        per_step=int(algorithm.proximal == "ewma") + int("reference" in algorithm.needs),
        by_row=algorithm.optimal_baseline,
    )


def describe(algorithm: Algorithm, spec: RunSpec) -> dict[str, Any]:
    """Return facts for readers of results without the plugin at hand: plain data for `run.json`."""
    cls, entry = type(algorithm), entry_of(type(algorithm))
    texts = {name: getattr(entry, name) for name in ("family", "level", "transform", "trust_region", "anchor")}
    return {
        "summary": summary(cls),
        "paper": cls.paper,
        "code": source_hash(cls, active_options(algorithm)),
        **texts,
        "proximal": "" if algorithm.proximal == "behaviour" else ANCHORS[algorithm.proximal],
        "passes": str(extra_passes(algorithm, spec)),
        "needs": sorted(cls.needs),
        "touches": dict(entry.touches),
    }


def _file(cls: type[Algorithm]) -> Path:
    return Path(source_file(cls)).with_name("methods.toml")


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return _parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of TOML, of UTF-8
        raise UserError(f"{file} cannot be read: {error}") from error


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> dict[str, Any]:
    """Parse TOML, once for all methods of a file; the result is shared and must not be changed."""
    return tomllib.loads(text)


def warnings_of(algorithm: Algorithm, spec: RunSpec) -> list[str]:
    """Return the warnings of a method under a run's settings."""
    updates = spec.epochs * spec.minibatches
    lines = [mismatch_warning(algorithm, spec), idle_correction(algorithm, spec)]
    if spec.step_size != "constant" and defines(algorithm, "step_scale"):
        lines.append(f"{algorithm.name} scales its steps itself, and step_size={spec.step_size} multiplies that factor")
    if spec.capacity > 1 or updates > 1:  # otherwise no data are stale
        lines.append(algorithm.inactive(updates))
    return [line for line in lines if line is not None]


def idle_correction(algorithm: Algorithm, spec: RunSpec) -> str | None:
    """Return a warning where a weight corrects the sampler's engine alone, and the trainer's own policy samples."""
    sampler_differs = spec.mismatch != NONE or spec.behaviour == "sampler" or getattr(spec, "kv_cache", "") == "keep"
    if getattr(algorithm, "correct", "all") != "engine" or sampler_differs:
        return None
    return (
        f"{algorithm.name}: without MISMATCH the version itself samples, so with correct=engine the weight is always 1"
    )


def mismatch_warning(algorithm: Algorithm, spec: RunSpec) -> str | None:
    """Return a warning where the loss ignores the run's mismatch; None otherwise."""
    if spec.mismatch == NONE or not (spec.behaviour == "version" or ignores_behaviour(algorithm)):
        return None
    reason = "behaviour=version" if spec.behaviour == "version" else "its loss does not depend on μ"
    return f"{algorithm.name} is blind to MISMATCH={spec.mismatch}, which changes only its data: {reason}"


def ignores_behaviour(algorithm: Algorithm) -> bool:
    """Return whether a method's gradient is the same whatever μ is; False where its loss
    fails on this example."""
    import torch

    def loss_gradient(drift: float) -> Tensor:
        decisions = _example(algorithm, drift)
        (gradient,) = torch.autograd.grad(algorithm.policy_loss(decisions).loss.sum(), decisions.target_logp)
        return gradient

    try:
        return all(torch.equal(loss_gradient(0.0), loss_gradient(drift)) for drift in (0.05, 1.0, -1.0))
    except Exception:
        return False


def uses_behaviour_kl(algorithm: Algorithm) -> bool:
    """Return whether a method's loss has a KL from μ in closed form: one that it needs, or that it takes on an
    example."""
    at_behaviour = algorithm.proximal == "behaviour"
    if at_behaviour and "closed_form" in algorithm.needs:
        return True
    anchors: list[str] = []
    with contextlib.suppress(Exception):  # of a loss that fails on the example
        decisions = _example(algorithm, 0.05)

        def analytic_kl(anchor: str) -> Tensor:
            anchors.append("behaviour" if at_behaviour else anchor)
            return 0.5 * (decisions.target_logp - decisions.behaviour_logp).square()

        algorithm.policy_loss(replace(decisions, analytic_kl=analytic_kl))
    return "behaviour" in anchors


def _example(algorithm: Algorithm, drift: float) -> Decisions:
    """Make two rows of four decisions, with μ a `drift` away from π."""
    import torch

    target = -1.0 - torch.arange(8.0).reshape(2, 4) / 8.0
    target.requires_grad_()
    behaviour = target.detach() + drift * torch.tensor([1.0, -0.5, 0.5, -0.25])
    ones = torch.ones_like(behaviour)
    return Decisions(
        target_logp=target,
        behaviour_logp=behaviour,
        proximal_logp=behaviour if algorithm.proximal == "behaviour" else target.detach() + 0.1,
        advantage=ones * torch.tensor([1.0, 1.0, -1.0, -1.0]),
        lag=ones,
        gradient_lag=ones,
        mask=ones,
        state=algorithm.init_state(),
        group=torch.zeros(2, dtype=torch.int64),
        outcome=torch.tensor([1.0, 0.0]),
        logit_norm=0.5 * ones,
        reference_logp=target.detach() + 0.2,
        version_logp=target.detach() + 0.15,
    )
