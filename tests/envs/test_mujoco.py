"""The MuJoCo family against gymnasium's own environments, bit for bit, and against gymnasium's
conventions.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from places import ROOT

from staleharness.errors import UserError
from staleharness.task import ENVS, find_env

IDS = sorted(ENVS["mujoco"].ids)


def our_vector(env: str, num_envs: int, threads: int = 2) -> Any:
    found, family = find_env(env)
    return family().make(found, num_envs, threads)


def gymnasium_vector(env: str, num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: gymnasium.make(env)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def actions_for(vector: Any, steps: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Uniform actions whose scale goes up and down, so that some episodes are long and some end at once."""
    rng = np.random.default_rng(seed)
    scale = np.abs(np.sin(np.arange(steps) / 40))[:, None, None] * vector.single_action_space.high * 1.2
    return (rng.uniform(-1, 1, (steps, *vector.action_space.shape)) * scale).astype(dtype)


def rollout(vector: Any, actions: Any) -> list[tuple[Any, ...]]:
    """Every array of every step, and of the partial reset after it where an episode ended."""
    arrays = []
    for action in actions:
        observation, reward, terminated, truncated, _ = vector.step(action)
        arrays.append((observation, reward, terminated, truncated))
        if (done := terminated | truncated).any():
            arrays.append((vector.reset(options={"reset_mask": done})[0],))
    return arrays


def assert_identical(xs: list[tuple[Any, ...]], ys: list[tuple[Any, ...]]) -> None:
    assert len(xs) == len(ys)
    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        for a, b in zip(x, y, strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"differ at record {t}: {a} {b}"


@pytest.mark.parametrize("env", IDS)
def test_steps_equal_gymnasium_bit_for_bit(env: str) -> None:
    """Over 300 steps, and over a thousand where no episode ends before."""
    vector, reference = our_vector(env, 2), gymnasium_vector(env, 2)
    assert vector.observation_space == reference.observation_space and vector.action_space == reference.action_space
    assert_identical([vector.reset(seed=11)[:1]], [reference.reset(seed=11)[:1]])
    for actions in np.split(actions_for(vector, 1003), [303]):
        records = rollout(vector, actions)
        assert_identical(records, rollout(reference, actions))
        if ended := any(len(record) == 1 for record in records):
            break
    assert ended, "no reset was tested"
    vector.close()
    reference.close()


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "Ant-v5"])
def test_double_precision_actions_give_gymnasiums_reward(env: str) -> None:
    vector, reference = our_vector(env, 3), gymnasium_vector(env, 3)
    vector.reset(seed=0), reference.reset(seed=0)
    actions = actions_for(vector, 40, dtype=np.float64)
    assert_identical(rollout(vector, actions), rollout(reference, actions))


def test_double_pendulum_penalties_equal_gymnasiums() -> None:
    """x**2 of a NumPy scalar is the C library's pow, which is not always the nearest number to x * x."""
    robot: Any = gymnasium.make("InvertedDoublePendulum-v5").unwrapped
    formulas = type(our_vector("InvertedDoublePendulum", 1)._formulas)(robot)
    rng = np.random.default_rng(0)
    d = SimpleNamespace(site_xpos=rng.normal(size=(20000, 1, 3)) * 3, qvel=rng.normal(size=(20000, 3)) * 99)
    reward, fallen = formulas.judge(d, np.empty((20000, 0)), np.empty((20000, 1)))
    for i in range(20000):
        robot.data.qvel[:] = d.qvel[i]
        x, _, y = d.site_xpos[i, 0]
        assert fallen[i] == (y <= 1)
        assert reward[i] == robot._get_rew(x, y, bool(fallen[i]))[0]


@pytest.mark.parametrize("env", ["Hopper-v5", "Humanoid-v5"])
def test_results_do_not_depend_on_the_number_of_threads(env: str) -> None:
    records = []
    for threads in (1, 2, 5):
        vector = our_vector(env, 7, threads)
        records.append([vector.reset(seed=3)[:1], *rollout(vector, actions_for(vector, 60))])
        vector.close()
    assert_identical(records[0], records[1])
    assert_identical(records[0], records[2])


def test_seeds_may_be_an_integer_or_a_list_with_gaps() -> None:
    vector, reference = our_vector("Hopper", 3), gymnasium_vector("Hopper-v5", 3)
    for seed in (4, [9, None, 7], np.int64(2), None):
        expected = reference.reset(seed=int(seed) if isinstance(seed, np.int64) else seed)[0]
        np.testing.assert_array_equal(vector.reset(seed=seed)[0], expected)
    with pytest.raises(ValueError, match="2 seeds for 3 environments"):
        vector.reset(seed=[1, 2])


@pytest.mark.parametrize("env", ["Hopper-v5", "Ant-v5"])
def test_resting_environments_leave_the_others_as_they_were(env: str) -> None:
    whole, part = our_vector(env, 4), our_vector(env, 4)
    resting = np.array([True, False, True, False])
    actions = actions_for(whole, 60)
    for vector in (whole, part):
        vector.reset(seed=3)
    part.rest(resting)
    kept = part.get_state()
    for action in actions:
        theirs, mine = whole.step(action), part.step(action)
        for a, b in zip(theirs[:4], mine[:4], strict=True):
            assert a[~resting].tobytes() == b[~resting].tobytes()
        assert mine[0][resting].tobytes() == kept["observations"][resting].tobytes()
        assert not mine[1][resting].any()
        assert not (mine[2] | mine[3])[resting].any()
        if (done := theirs[2] | theirs[3]).any():
            whole.reset(options={"reset_mask": done})
        if (done & ~resting).any():
            part.reset(options={"reset_mask": done & ~resting})
    again = part.reset(seed=3, options={"reset_mask": resting})[0]
    assert again[resting].tobytes() == kept["observations"][resting].tobytes()
    part.step(actions[0])
    assert (part.get_state()["elapsed"][resting] == 1).all()


def test_an_environment_rests_at_the_end_of_its_episode() -> None:
    vector = our_vector("Hopper-v5", 3)
    vector.reset(seed=0)
    done = np.zeros(3, dtype=bool)
    for action in actions_for(vector, 1000, seed=1):
        _, _, terminated, truncated, _ = vector.step(action)
        assert not (done & (terminated | truncated)).any()  # each ends once
        done |= terminated | truncated
        vector.rest(done)
        if done.all():
            break
    assert done.all()


def test_without_a_seed_two_vectors_differ() -> None:
    assert (our_vector("Hopper", 2).reset()[0] != our_vector("Hopper", 2).reset()[0]).any()


def test_a_partial_reset_touches_the_chosen_environments_only() -> None:
    vector = our_vector("Ant", 3)
    vector.reset(seed=0)
    before = vector.step(actions_for(vector, 1)[0])[0]
    physics = vector.get_state()["physics"]
    mask = np.array([False, True, False])
    after = vector.reset(options={"reset_mask": mask})[0]
    np.testing.assert_array_equal(after[~mask], before[~mask])
    assert (after[mask] != before[mask]).any()
    np.testing.assert_array_equal(vector.get_state()["physics"][~mask], physics[~mask])
    assert mask.tolist() == [False, True, False]
    np.testing.assert_array_equal(vector.get_state()["elapsed"], [1, 0, 1])


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True, False], TypeError),
        (np.array([1, 0]), TypeError),
        (np.ones(3, bool), TypeError),
        (np.zeros(2, bool), ValueError),
    ],
)
def test_a_bad_reset_mask_is_refused(mask: Any, error: type[Exception]) -> None:
    vector = our_vector("Hopper", 2)
    with pytest.raises(error, match="reset_mask"):
        vector.reset(options={"reset_mask": mask})


def test_a_finished_or_unborn_environment_refuses_to_step() -> None:
    vector = our_vector("InvertedPendulum", 2)
    push = np.full((2, 1), 3.0, np.float32)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[0, 1\]"):
        vector.step(push)
    vector.reset(seed=0)
    while not (vector.step(push)[2]).any():
        pass
    with pytest.raises(gymnasium.error.ResetNeeded):
        vector.step(push)


def test_actions_of_a_wrong_shape_are_refused() -> None:
    vector = our_vector("Hopper", 2)
    vector.reset(seed=0)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        vector.step(np.zeros(3, np.float32))


@pytest.mark.parametrize("env", ["Hopper", "Humanoid"])
def test_returned_arrays_belong_to_the_caller(env: str) -> None:
    vector = our_vector(env, 2)
    first = vector.reset(seed=0)[0]
    state = vector.get_state()
    kept, kept_state = first.copy(), {name: array.copy() for name, array in state.items()}
    actions = actions_for(vector, 6)
    records = [vector.step(action)[:4] for action in actions[:3]]
    copies = [tuple(array.copy() for array in record) for record in records]
    for action in actions[3:]:
        vector.step(action)
    vector.reset()
    np.testing.assert_array_equal(first, kept)
    assert_identical(records, copies)
    for name, array in kept_state.items():
        np.testing.assert_array_equal(state[name], array)
    records[0][0][:] = np.nan  # and what the caller does to them does not come back
    assert np.isfinite(vector.step(actions[0])[0]).all()


@pytest.mark.parametrize("env", ["Hopper", "InvertedDoublePendulum", "Reacher", "Ant", "Humanoid"])
@pytest.mark.long
def test_a_restored_vector_goes_on_with_other_threads(env: str) -> None:
    vector = our_vector(env, 3, threads=2)
    vector.reset(seed=1)
    actions = actions_for(vector, 360)
    rollout(vector, actions[:60])
    state = vector.get_state()
    assert all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in state.values())
    expected = rollout(vector, actions[60:])
    assert any(len(record) == 1 for record in expected), "no reset: the generators were not tested"
    for threads in (1, 3):
        other = our_vector(env, 3, threads)
        other.set_state(state)
        assert_identical(rollout(other, actions[60:]), expected)
    vector.set_state(state)  # an object that has already moved on
    assert_identical(rollout(vector, actions[60:]), expected)


def test_an_unseeded_vector_is_restored_with_its_generators() -> None:
    vector, other = our_vector("InvertedPendulum", 2), our_vector("InvertedPendulum", 2)
    vector.reset()
    actions = actions_for(vector, 80)
    rollout(vector, actions[:20])
    other.set_state(vector.get_state())
    expected = rollout(vector, actions[20:])
    assert any(len(record) == 1 for record in expected)
    assert_identical(rollout(other, actions[20:]), expected)


def test_a_state_at_the_end_of_an_episode_is_restored() -> None:
    vector = our_vector("InvertedPendulum", 2)
    vector.reset(seed=0)
    push = np.array([[3.0], [0.0]], np.float32)
    while not (vector.step(push)[2]).any():
        pass
    other = our_vector("InvertedPendulum", 2)
    other.set_state(vector.get_state())
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[0\]"):
        other.step(push)
    mask = {"reset_mask": np.array([True, False])}
    np.testing.assert_array_equal(other.reset(options=dict(mask))[0], vector.reset(options=dict(mask))[0])


def test_a_state_of_another_size_is_refused_and_changes_nothing() -> None:
    vector, other = our_vector("Hopper", 2), our_vector("Hopper", 3)
    vector.reset(seed=0), other.reset(seed=0)
    before = other.get_state()
    with pytest.raises(ValueError, match="physics has shape"):
        other.set_state(vector.get_state())
    for name, array in other.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    with pytest.raises(RuntimeError, match="before the first reset"):
        our_vector("Hopper", 2).get_state()


FORKED = """
import os, sys, numpy as np
from staleharness.task import find_env
env, family = find_env("{env}")
vector = family().make(env, 3, 2)
if (child := os.fork()) == 0:  # the vector was built before the fork, its threads start after
    vector.set_state(dict(np.load("{file}")))
    np.save("{out}", vector.step(np.full(vector.action_space.shape, 0.1, np.float32))[0])
    vector.close()
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("env", ["Hopper", "Ant"])
def test_a_saved_state_goes_on_in_a_forked_child(env: str, tmp_path: Path) -> None:
    vector = our_vector(env, 3)
    vector.reset(seed=1)
    rollout(vector, actions_for(vector, 20))
    np.savez(tmp_path / "state.npz", **vector.get_state())
    expected = vector.step(np.full(vector.action_space.shape, 0.1, np.float32))[0]
    script = FORKED.format(env=env, file=tmp_path / "state.npz", out=tmp_path / "out.npy")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        timeout=600,
    )
    assert run.returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


@pytest.mark.parametrize("env", ["Hopper-v5", "Humanoid-v5"])
def test_unstable_physics_is_gymnasiums_and_is_not_silent(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    vector, reference = our_vector(env, 6), gymnasium_vector(env, 6)
    vector.reset(seed=0), reference.reset(seed=0)
    for i in (1, 2, 3, 5):
        vector._physics.fields["qvel"][i, 1] = 1e12
        reference.envs[i].unwrapped.data.qvel[1] = 1e12  # type: ignore[attr-defined]
    action = np.zeros(vector.action_space.shape, np.float32)
    with caplog.at_level(logging.WARNING, logger="mujoco"):
        *x, infos = vector.step(action)
    *y, _ = reference.step(action)
    assert_identical([tuple(x)], [tuple(y)])
    assert infos["mujoco_warning"].tolist() == [False, True, True, True, False, True]
    assert "unstable" in caplog.text
    if not x[2].any():
        *x, after = vector.step(action)
        assert_identical([tuple(x)], [tuple(reference.step(action)[:4])])
        assert "mujoco_warning" not in after, "the complaint must not stay"
    mask = {"reset_mask": infos["mujoco_warning"]}
    np.testing.assert_array_equal(vector.reset(options=dict(mask))[0], reference.reset(options=dict(mask))[0])
    assert not list(tmp_path.iterdir()), "MuJoCo wrote a log file"


def test_close_may_be_called_twice_and_ends_the_threads() -> None:
    before = set(threading.enumerate())
    vector = our_vector("Ant", 8, threads=3)
    vector.reset(seed=0)
    started = set(threading.enumerate()) - before
    assert started
    vector.close()
    vector.close()
    assert not any(thread.is_alive() for thread in started)


def test_short_names_give_the_id_and_typos_the_nearest_name() -> None:
    assert find_env("halfcheetah")[0] == "HalfCheetah-v5"
    assert find_env("Hopper")[1] is ENVS["mujoco"]
    with pytest.raises(UserError, match="Hopper"):
        find_env("Hoper")


def test_listed_ids_are_found_without_importing_a_simulator() -> None:
    script = "import sys; from staleharness.task import find_env; find_env('Hopper'); find_env('Pendulum'); "
    script += "sys.exit(bool({'gymnasium', 'mujoco', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode == 0


@pytest.mark.parametrize("env", ["Hopper-v5", "Ant-v5"])  # a batch, and a pool of threads
def test_the_clock_stands_still_unless_the_user_has_set_one(env: str) -> None:
    import mujoco

    robot: Any = gymnasium.make("Hopper-v5").unwrapped

    def seconds() -> float:
        data = mujoco.MjData(robot.model)
        mujoco.mj_step(robot.model, data, 20)
        return float(data.timer[0].duration)

    theirs = ctypes.CFUNCTYPE(ctypes.c_double)(("PyFloat_GetMax", ctypes.pythonapi))
    before = mujoco.get_mjcb_time()
    try:
        mujoco.set_mjcb_time(None)
        assert seconds() > 0
        our_vector(env, 1).reset(seed=0)
        assert seconds() == 0
        mujoco.set_mjcb_time(theirs)
        our_vector(env, 1).reset(seed=0)
        assert mujoco.get_mjcb_time() is theirs
    finally:
        mujoco.set_mjcb_time(before)


def test_a_mujoco_that_does_not_import_does_not_end_the_fork_server() -> None:
    code = "import staleharness.control.mujoco.preload, sys; print('mujoco.batch' in sys.modules)"
    for gl, loads in (("nonsense", "False"), ("", "True")):
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, env={**os.environ, "MUJOCO_GL": gl}, capture_output=True, text=True, cwd=ROOT)
        assert (run.returncode, run.stdout.strip()) == (0, loads), run.stderr
