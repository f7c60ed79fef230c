"""Control in the loop: past policies act in environments, or their stored rollouts return."""

from __future__ import annotations

import contextlib
import functools
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import Rollout
from ..errors import Changed, Diverged
from ..lag import read_lag
from ..store.numpy_policy import POLICY
from ..tokens.token_metrics import mismatch_metrics
from ..training.loop import RowSource, Simulation
from ..training.phase_record import PhaseData, Scores
from ..training.sample_ledger import Count, Flow
from .action_distributions import far_bounds
from .evaluation import evaluate
from .gymnasium_env_lookup import code_digest
from .learner import ControlData, ControlLearner
from .moments import Moments, RewardScale
from .native_actor_critic import policy_for
from .policy import MLPPolicy
from .policy_io import export, load_into, policy_digest, policy_path, read_policy
from .rollout_sources import ControlProcessRollouts, ScheduledRollouts, TrainingRows, concatenate
from .spec import ControlSpec
from .task import ControlTask

REPEATS_FIRST_BATCH = (
    "mechanism=replay trains on the first batch in every phase until LAG={} reaches its lag, which is over-fitting, "
    "not delay; LAG=delay:<l> without replay is a queue, which trains on nothing before it is full"
)


class RolloutStore:
    """The rollouts of the newest `capacity` phases, which return where mechanism=replay, under the same lag models.

    The newest policy collects every phase, and the lag model draws what the learner consumes: `fixed:<l>` is a
    first-in-first-out delay that takes the first batch l + 1 times (`delay` does not), `uniform` is replay in which a
    row may return several times or never. Rows that leave unseen are counted.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self.unseen_rows = 0  # rows that left without ever being consumed
        self.reused_rows = 0  # how many of the rows consumed last had been consumed before
        self._rollouts: dict[int, Rollout] = {}
        self._seen_rows: dict[int, NDArray[np.bool_]] = {}
        self._trained: dict[int, Tensor] = {}  # [B, T] bool, decisions that were trained on
        self._drawn: list[tuple[int, Tensor]] = []  # phases and rows consumed last

    def push(self, phase: int, rollout: Rollout) -> None:
        self._rollouts[phase] = rollout
        self._seen_rows[phase] = np.zeros(rollout.reward.shape[0], dtype=bool)
        self._trained[phase] = torch.zeros_like(rollout.reward, dtype=torch.bool)
        while len(self._rollouts) > self.capacity:
            leaving = min(self._rollouts)
            self.unseen_rows += int((~self._seen_rows.pop(leaving)).sum())
            del self._rollouts[leaving], self._trained[leaving]

    def draw(self, phases: NDArray[np.int64]) -> Rollout:
        """Row b from the rollout of `phases[b]`; rows come sorted by phase, then by slot."""
        parts, self.reused_rows, self._drawn = [], 0, []
        for phase in np.unique(phases).tolist():
            rows = np.flatnonzero(phases == phase)
            self.reused_rows += int(self._seen_rows[phase][rows].sum())
            self._seen_rows[phase][rows] = True
            self._drawn.append((phase, torch.from_numpy(rows).to(self.device)))
            parts.append(self._rollouts[phase].rows(self._drawn[-1][1]))
        return concatenate(parts)

    def trained_before(self) -> Tensor:
        """Return [B, T] bool of the rows drawn last: decisions that earlier phases trained on."""
        return torch.cat([self._trained[phase][rows] for phase, rows in self._drawn])

    def mark_trained(self, trained: Tensor | None) -> None:
        """Store which decisions [B, T] of the rows drawn last were trained on (above 0); None: all."""
        trained = torch.ones_like(self.trained_before()) if trained is None else trained > 0
        for (phase, rows), part in zip(self._drawn, trained.split([len(rows) for _, rows in self._drawn]), strict=True):
            self._trained[phase][rows] |= part

    @property
    def waiting_rows(self) -> int:
        """Rows that are held and have not been consumed yet."""
        return sum(int((~is_seen).sum()) for is_seen in self._seen_rows.values())

    def state_dict(self) -> dict[str, Any]:
        return {
            "unseen_rows": self.unseen_rows,
            "rollouts": {phase: rollout.columns for phase, rollout in self._rollouts.items()},
            "seen": {phase: torch.from_numpy(is_seen) for phase, is_seen in self._seen_rows.items()},
            "trained": dict(self._trained),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.unseen_rows = state["unseen_rows"]
        self._rollouts = {phase: Rollout(**tensors).to(self.device) for phase, tensors in state["rollouts"].items()}
        self._seen_rows = {phase: is_seen.numpy() for phase, is_seen in state["seen"].items()}
        if "trained" in state:
            self._trained = {phase: x.to(self.device) for phase, x in state["trained"].items()}
        else:  # as written until 1 December 2026: all that was consumed counts as trained on
            self._trained = {
                phase: state["seen"][phase].to(self.device)[:, None].expand_as(rollout.reward).clone()
                for phase, rollout in self._rollouts.items()
            }


class ControlSimulation(Simulation[ControlData]):
    """A run on gymnasium environments.

    actors: source of the rows.
    rollouts: those of past phases, where mechanism=replay brings them back.
    """

    spec: ControlSpec
    task: ControlTask
    policy: MLPPolicy
    stateful: ClassVar[tuple[str, ...]] = ("rollouts", "actors", "reward_scale")

    def __init__(self, spec: ControlSpec, task: ControlTask) -> None:
        drawn = read_lag(spec.lag).drawn
        if spec.env_digest and code_digest(spec.env) != spec.env_digest:
            raise Changed(f"the code of ENV={spec.env} was edited since the run was planned; start the sweep again")
        with contextlib.ExitStack() as stack:  # actors of a schedule, or in processes, have environments of their own
            env = task.vector(spec.env, spec.num_envs if drawn else 1, spec.threads if drawn else 1)
            stack.callback(env.close)
            super().__init__(spec, task)
            self.policy = policy_for(spec, env)
            if (far := far_bounds(env)) is not None:
                self.warnings.append(f"{spec.env}: {far}")
            self.moments = Moments.initial(self.policy.obs_dim)
            if spec.start:  # before the learner, which copies weights
                self.moments = self._start_policy()
            self.learner = ControlLearner(spec, self.policy, self.algorithm)
            self.export = functools.partial(export, vector=env, env=spec.env)
            self.best: tuple[float, bytes] = (-math.inf, b"")  # score and file of the best policy, for keep=best
            self.reward_scale = RewardScale()
            self.rollouts = RolloutStore(spec.capacity, self.policy.device)
            self.actors: RowSource[TrainingRows]
            if self.lags.model.real:
                self.actors = ControlProcessRollouts(spec, task, self.lags)
            else:
                self.actors = ScheduledRollouts(spec, task, self.policy, self.lags, env if drawn else None)
            if drawn:
                stack.pop_all()
        if spec.mechanism == "replay":
            first, later = self.lags.probabilities(1), self.lags.probabilities(spec.capacity)
            if first == {0: 1.0} and len(later) == 1:  # a queue of whole phases
                self.warnings.append(REPEATS_FIRST_BATCH.format(spec.lag))

    def _start_policy(self) -> Moments:
        """Load the policy that the run starts from. Raises `Changed` where it is not the one that was planned."""
        path = policy_path(self.spec.start)
        if policy_digest(path) != self.spec.start_digest:
            raise Changed(f"start={path} holds another policy than when the run was planned; start the sweep again")
        return load_into(self.policy, read_policy(path), str(path))

    def collect(self, phase: int) -> PhaseData[ControlData]:
        spec, rows = self.spec, self.actors.collect(self.buffer, phase)
        rollout, flow = rows.rollout, rows.flow
        fresh = slice(None) if rows.first_use is None else rows.first_use  # counted once in the running statistics
        self.reward_scale.update(rows.returns[:, fresh])
        if spec.mechanism == "replay":
            rollout, flow = self._replay(phase, rows.rollout)
        self._check_finite(rows.rollout)
        reward = self.reward_scale(rollout.reward) if spec.scale_rewards else rollout.reward.float()
        metrics = {
            "rollout_return": float(np.mean(rows.episodes.returns)) if rows.episodes.returns else None,
            "rollout_length": float(np.mean(rows.episodes.lengths)) if rows.episodes.lengths else None,
            "rollout_episodes": len(rows.episodes.returns),
            "unseen_rows": self.rollouts.unseen_rows,
            **self.external_lag(phase, rollout.gradient_step),
            **_mismatch(rows.rollout),
        }
        data = ControlData(rollout, reward, rows.rollout.obs[fresh].flatten(0, 1), rows.loss_mask)
        return PhaseData(data, rows.rollout.behaviour_logp, metrics, {}, flow)

    def _replay(self, phase: int, fresh: Rollout) -> tuple[Rollout, Flow]:
        """Store a phase's rollout, and return the rows that the lag model draws from the stored ones."""
        spec, store = self.spec, self.rollouts
        unseen = store.unseen_rows
        store.push(phase, fresh)
        rollout = store.draw(self.lags.draw(phase, spec.num_envs).starts)
        generated, dropped, queued, reused = (
            Count(rows).rows(spec.num_steps)
            for rows in (spec.num_envs, store.unseen_rows - unseen, store.waiting_rows, store.reused_rows)
        )
        before = store.trained_before()
        return rollout, Flow(generated, dropped=dropped, queued=queued, reused=reused, trained_before=before)

    def _check_finite(self, rollout: Rollout) -> None:
        """Raise `Diverged` for an observation or reward that is not finite, but not where an earlier action was not
        finite. The final observation of a terminated episode is not used, and may be anything."""
        sound = rollout.behaviour_logp.isfinite().cumprod(1).bool()  # [B, T], every decision up to this one
        before = torch.cat([torch.ones_like(sound[:, :1]), sound[:, :-1]], 1)
        ends = rollout.final_row, rollout.final_step
        for noun, finite, to_blame in (
            ("an observation", rollout.obs.isfinite().all(-1), before),
            ("an observation", rollout.final_obs.isfinite().all(-1), sound[ends] & ~rollout.terminated[ends]),
            ("a reward", rollout.reward.isfinite(), sound),
        ):
            if bool((~finite & to_blame).any()):
                raise Diverged(f"{self.spec.env} gave {noun} that is not finite in phase {self.phase}")

    def rows_of(self, data: ControlData) -> Rollout:
        return data.rollout

    def between_phases(self, data: ControlData) -> dict[str, Any]:
        if self.spec.mechanism == "replay":
            assert self.learner.rows is not None
            self.rollouts.mark_trained(self.learner.rows.trained)
        return {"statistics_drift": self._update_statistics(data.fresh_obs)}

    def _update_statistics(self, obs: Tensor) -> float:
        """Update the observation statistics; returns how far the scaled observations moved (mean absolute change of
        the standardised mean). `frozen` statistics are those of the first phase."""
        if self.spec.observation_statistics == "frozen" and self.phase > 0:
            return 0.0
        before = self.moments
        self.moments = before.with_samples(obs.cpu())
        self.policy.set_statistics(self.moments)
        mean, inverse_std = self.moments.scaling()
        return float(((mean - before.mean.float()) * inverse_std).abs().mean())

    def evaluate(self) -> Scores:
        final = self.phase == self.spec.phases
        episodes = self.spec.final_episodes if final else self.spec.evaluation_episodes
        newest = self.policy.snapshot(self.phase, self.gradient_steps)
        scores = evaluate(self.spec, self.task, self.policy, newest, episodes)
        if self.spec.keep == "best" and (score := scores.mean(self.task.score)) > self.best[0]:
            self.best = score, self.export(self.policy, self.moments)
        return scores

    def artifacts(self) -> dict[str, bytes]:
        contents = {"last": lambda: self.export(self.policy, self.moments), "best": lambda: self.best[1]}
        content = contents.get(self.spec.keep)
        return self.actors.artifacts() | ({} if content is None else {POLICY: content()})

    def close(self) -> None:
        self.actors.close()

    def state_dict(self) -> dict[str, Any]:
        best = {"best": {"score": self.best[0], "file": self.best[1].hex()}} if self.spec.keep == "best" else {}
        return {**super().state_dict(), "moments": self.moments.state_dict(), **best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "collector" in state:  # with drawn versions, as written until 25 November 2026
            actor = {"collector": state["collector"], "carry": state["reward_scale"]["carry"]}
            state = state | {"actors": {"actors": {0: actor}, "held": {}}}
        super().load_state_dict({"rollouts": self.rollouts.state_dict()} | state)
        self.buffer.to(self.policy.device)
        self.moments = Moments(**state["moments"])
        if "best" in state:
            self.best = state["best"]["score"], bytes.fromhex(state["best"]["file"])
        elif self.spec.keep == "best":
            raise ValueError("the run began with another keep=, and keep=best needs all evaluations of a run")
        if self.moments.count > 0:
            self.policy.set_statistics(self.moments)


def _mismatch(rollout: Rollout) -> dict[str, float]:
    """Return the distances between the copies that acted and their versions; empty without a mismatch model."""
    if rollout.version_logp is None or rollout.version_entropy is None:
        return {}
    return mismatch_metrics(
        rollout.sampler_logp, rollout.version_logp, rollout.version_entropy, torch.ones_like(rollout.version_logp)
    )


def simulation(spec: ControlSpec, task: ControlTask, folder: Path) -> ControlSimulation:
    return ControlSimulation(spec, task)
