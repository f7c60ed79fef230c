"""MuJoCo control: gymnasium's v5 robots with bit-identical numbers, and the physics on threads.

The file first defines each robot's observation, reward and termination (`Formulas`), then the table of ids. The
constants are read from gymnasium's own object. The order of the operations is gymnasium's, and so is their precision:
the control cost is computed in the precision of the actions (float32 from a policy; the humanoids use the float64
`ctrl`), everything else in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from staleharness.control.mujoco.base_robot import Bools, Floats, Formulas
from staleharness.control.task import ControlTask
from staleharness.task import ENVS

if TYPE_CHECKING:
    from staleharness.control.mujoco.vector import MujocoVector


def never(d: Any) -> Bools:
    """Return False for every environment: none terminates."""
    return np.zeros(len(d.qpos), dtype=np.bool_)


def squares(x: NDArray[Any]) -> NDArray[Any]:
    """Sum of squares over all but the first axis, in the precision of x."""
    return np.square(x).reshape(len(x), -1).sum(axis=1)


def distance(x: Floats) -> Floats:
    """Euclidean norm of each row, computed as a dot product, as `np.linalg.norm` does for a single vector."""
    x = np.ascontiguousarray(x)
    return np.sqrt(np.vecdot(x, x))


class Runner(Formulas):
    """HalfCheetah: velocity along x minus control cost; never terminates."""

    def place(self, d: Any) -> Floats:
        return d.qpos[:, :1].copy()

    def observe(self, d: Any) -> Floats:
        return np.concatenate((d.qpos[:, 1:], d.qvel), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        forward = self.env._forward_reward_weight * velocity[:, 0]
        return forward - self.env._ctrl_cost_weight * squares(action), never(d)


class Swimmer(Runner):
    """Velocity along x minus control cost; neither x nor y is observed."""

    def observe(self, d: Any) -> Floats:
        return np.concatenate((d.qpos[:, 2:], d.qvel), axis=1)


class Walker(Runner):
    """Walker2d: forward velocity plus a bonus while upright, minus control cost; terminates at a fall."""

    def observe(self, d: Any) -> Floats:
        return np.concatenate((d.qpos[:, 1:], np.clip(d.qvel, -10, 10)), axis=1)

    def healthy(self, d: Any) -> Bools:
        z, angle = d.qpos[:, 1], d.qpos[:, 2]
        (min_z, max_z), (min_angle, max_angle) = self.env._healthy_z_range, self.env._healthy_angle_range
        return (min_z < z) & (z < max_z) & (min_angle < angle) & (angle < max_angle)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        healthy = self.healthy(d)
        forward = self.env._forward_reward_weight * velocity[:, 0]
        reward = forward + healthy * self.env._healthy_reward - self.env._ctrl_cost_weight * squares(action)
        return reward, ~healthy & self.env._terminate_when_unhealthy


class Hopper(Walker):
    """Walker2d's reward on one leg; all positions and velocities except x and z must also stay in a range."""

    def healthy(self, d: Any) -> Bools:
        low, high = self.env._healthy_state_range
        state = np.concatenate((d.qpos, d.qvel), axis=1)[:, 2:]
        return super().healthy(d) & ((low < state) & (state < high)).all(axis=1)


class Ant(Formulas):
    """Forward velocity of the torso plus a bonus while its height is in a range, minus control and contact costs."""

    derived = ("xpos", "cfrc_ext")
    contact_forces = True

    def place(self, d: Any) -> Floats:
        torso = self.env.model.body(self.env._main_body).id
        return d.xpos[:, torso, :2].copy()

    def forces(self, d: Any) -> Floats:
        low, high = self.env._contact_force_range
        return np.clip(d.cfrc_ext, low, high)

    def observe(self, d: Any) -> Floats:
        forces = self.forces(d)[:, 1:].reshape(len(d.qpos), -1)
        return np.concatenate((d.qpos[:, 2:], d.qvel, forces), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        low, high = self.env._healthy_z_range
        finite = np.isfinite(d.qpos).all(axis=1) & np.isfinite(d.qvel).all(axis=1)
        healthy = finite & (low <= d.qpos[:, 2]) & (d.qpos[:, 2] <= high)
        rewards = velocity[:, 0] * self.env._forward_reward_weight + healthy * self.env._healthy_reward
        contact_cost = self.env._contact_cost_weight * squares(self.forces(d))
        costs = self.env._ctrl_cost_weight * squares(action) + contact_cost
        return rewards - costs, ~healthy & self.env._terminate_when_unhealthy


class Humanoid(Formulas):
    """Forward velocity of the centre of mass plus a bonus while upright, minus control and contact costs."""

    derived = ("xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    contact_forces = True

    def place(self, d: Any) -> Floats:
        mass = self.env.model.body_mass
        return (np.einsum("b,nbj->nj", mass, d.xipos) / mass.sum())[:, :2]

    def observe(self, d: Any) -> Floats:
        flat = [field[:, 1:].reshape(len(d.qpos), -1) for field in (d.cinert, d.cvel, d.cfrc_ext)]
        inertia, velocity, forces = flat
        return np.concatenate((d.qpos[:, 2:], d.qvel, inertia, velocity, d.qfrc_actuator[:, 6:], forces), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        low, high = self.env._healthy_z_range
        healthy = (low < d.qpos[:, 2]) & (d.qpos[:, 2] < high)
        rewards = self.env._forward_reward_weight * velocity[:, 0] + healthy * self.env._healthy_reward
        contact_cost = np.clip(self.env._contact_cost_weight * squares(d.cfrc_ext), *self.env._contact_cost_range)
        costs = self.env._ctrl_cost_weight * squares(d.ctrl) + contact_cost
        return rewards - costs, ~healthy & self.env._terminate_when_unhealthy


class HumanoidStandup(Humanoid):
    """Height divided by the physics time step, plus 1, minus control and impact costs; never terminates."""

    def place(self, d: Any) -> Floats:
        return np.empty((len(d.qpos), 0))

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        height = d.qpos[:, 2] / self.env.model.opt.timestep
        impact_cost = np.clip(self.env._impact_cost_weight * squares(d.cfrc_ext), *self.env._impact_cost_range)
        return height - self.env._ctrl_cost_weight * squares(d.ctrl) - impact_cost + 1, never(d)


class InvertedPendulum(Formulas):
    """A reward of 1 for each step in which the pole is upright."""

    def observe(self, d: Any) -> Floats:
        return np.concatenate((d.qpos, d.qvel), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        observation = self.observe(d)
        fallen = ~np.isfinite(observation).all(axis=1) | (np.abs(observation[:, 1]) > 0.2)
        return (~fallen).astype(np.float64), fallen


class InvertedDoublePendulum(Formulas):
    """A bonus while the tip is higher than 1, minus distance and velocity penalties."""

    derived = ("site_xpos", "qfrc_constraint")

    def observe(self, d: Any) -> Floats:
        angles, force = np.ascontiguousarray(d.qpos[:, 1:]), np.clip(d.qfrc_constraint[:, :1], -10, 10)
        return np.concatenate((d.qpos[:, :1], np.sin(angles), np.cos(angles), np.clip(d.qvel, -10, 10), force), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        x, y = d.site_xpos[:, 0, 0], d.site_xpos[:, 0, 2]
        fallen = y <= 1
        # float_power and not **: gymnasium squares scalars, for which ** calls the C library's pow; on an array ** 2
        # is a multiplication, whose last bit differs about once in a thousand times
        distance_penalty = 0.01 * np.float_power(x, 2) + np.float_power(y - 2, 2)
        velocity_penalty = 1e-3 * np.float_power(d.qvel[:, 1], 2) + 5e-3 * np.float_power(d.qvel[:, 2], 2)
        return self.env._healthy_reward * ~fallen - distance_penalty - velocity_penalty, fallen


class Reacher(Formulas):
    """Minus the distance from fingertip to target, minus control cost."""

    derived = ("xpos",)

    def offset(self, d: Any, end: str, start: str) -> Floats:
        return d.xpos[:, self.env.model.body(end).id] - d.xpos[:, self.env.model.body(start).id]

    def observe(self, d: Any) -> Floats:
        theta, reach = np.ascontiguousarray(d.qpos[:, :2]), self.offset(d, "fingertip", "target")[:, :2]
        return np.concatenate((np.cos(theta), np.sin(theta), d.qpos[:, 2:], d.qvel[:, :2], reach), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        near = -distance(self.offset(d, "fingertip", "target")) * self.env._reward_dist_weight
        return near + -squares(action) * self.env._reward_control_weight, never(d)


class Pusher(Reacher):
    """Minus the distances from arm to object and from object to goal, minus control cost."""

    def observe(self, d: Any) -> Floats:
        bodies = [d.xpos[:, self.env.model.body(name).id] for name in ("tips_arm", "object", "goal")]
        return np.concatenate((d.qpos[:, :7], d.qvel[:, :7], *bodies), axis=1)

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        near = -distance(self.offset(d, "object", "tips_arm")) * self.env._reward_near_weight
        far = -distance(self.offset(d, "object", "goal")) * self.env._reward_dist_weight
        return far + -squares(action) * self.env._reward_control_weight + near, never(d)


FORMULAS: dict[str, type[Formulas]] = {
    "Hopper-v5": Hopper,
    "Walker2d-v5": Walker,
    "HalfCheetah-v5": Runner,
    "Ant-v5": Ant,
    "Humanoid-v5": Humanoid,
    "HumanoidStandup-v5": HumanoidStandup,
    "Swimmer-v5": Swimmer,
    "InvertedPendulum-v5": InvertedPendulum,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "Reacher-v5": Reacher,
    "Pusher-v5": Pusher,
}


@ENVS.register("mujoco")
class Mujoco(ControlTask):
    """Robots from gymnasium's MuJoCo suite, with the physics on threads and the same numbers as gymnasium."""

    paper = "Todorov, Erez & Tassa 2012 (MuJoCo); Towers et al. 2024 (gymnasium)"
    ids: ClassVar[dict[str, str]] = {
        "Hopper-v5": "a leg that hops, 11 observations, 3 actions",
        "Walker2d-v5": "two legs in the plane, 17 observations, 6 actions",
        "HalfCheetah-v5": "a planar runner that cannot fall, 17 observations, 6 actions",
        "Ant-v5": "four legs, 105 observations with contact forces, 8 actions",
        "Humanoid-v5": "a humanoid that walks, 348 observations, 17 actions",
        "HumanoidStandup-v5": "a humanoid that gets up, 348 observations, 17 actions",
        "Swimmer-v5": "three links in a viscous fluid, 8 observations, 2 actions",
        "InvertedPendulum-v5": "a pole on a cart, 4 observations, 1 action",
        "InvertedDoublePendulum-v5": "two poles on a cart, 9 observations, 1 action",
        "Reacher-v5": "a two-link arm that reaches a target, 10 observations, 2 actions, 50 steps",
        "Pusher-v5": "an arm that pushes a cylinder, 23 observations, 7 actions, 100 steps",
    }
    aliases: ClassVar[dict[str, str]] = {id.removesuffix("-v5"): id for id in ids}

    def make(self, env: str, num_envs: int, threads: int) -> MujocoVector:
        """See `ControlTask.make` and `staleharness.control.mujoco.vector.MujocoVector`."""
        import gymnasium

        from staleharness.control.mujoco.physics import log_warnings
        from staleharness.control.mujoco.vector import MujocoVector

        log_warnings()
        robot: Any = gymnasium.make(env, disable_env_checker=True).unwrapped
        limit = gymnasium.spec(env).max_episode_steps
        return MujocoVector(robot, FORMULAS[env](robot), num_envs, threads, max_episode_steps=limit)
