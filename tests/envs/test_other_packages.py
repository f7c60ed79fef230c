"""Environments of other packages: by their module, by a plugin file that only registers ids, by their entry point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from known_plugins import loaded_plugins
from places import ROOT
from sweeping import environment, process

from staleharness.control.gymnasium_env_lookup import code_digest
from staleharness.errors import Changed, UserError
from staleharness.running.plan import plan
from staleharness.study import sweep_request
from staleharness.task import ENVS, find_env
from staleharness.training.loop import simulation_of

DATA = Path(__file__).resolve().parents[1] / "data" / "envs"
SMALL = "num_envs=2,num_steps=32,epochs=1,minibatches=1,evaluations=1,evaluation_episodes=1,final_episodes=1"

MODULE = '''
"""A stranger's package: a point that has to come to a goal."""

import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {name: gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float64) for name in ("achieved_goal", "desired_goal")}
    )
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, speed=1.0):
        self.speed = speed

    def observe(self):
        return {"achieved_goal": self.at.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2))
        return self.observe(), {}

    def step(self, action):
        self.at = np.clip(self.at + 0.1 * self.speed * action, -9.0, 9.0)
        return self.observe(), -float(np.linalg.norm(self.at - self.goal)), False, False, {}


def register():
    gymnasium.register("Stranger/Reach-v0", entry_point=Reach, max_episode_steps=9)
    gymnasium.register("Stranger/Reach-v1", entry_point=Reach, max_episode_steps=9)


register()
'''
PACKAGE = {  # as pip installs it
    "stranger.py": MODULE,
    "stranger-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n",
    "stranger-1.0.dist-info/entry_points.txt": "[gymnasium.envs]\n__root__ = stranger:register\n"
    "broken = strange:register\n",
}
SWEEP = ["sweep", "--algo", "ppo_clip", "--k", "2", "--seeds", "1"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """gymnasium's registry and the imported modules as they were, afterwards."""
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("stranger", "oddenvs"):
            del sys.modules[name]


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of the stranger's package, on the path."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "stranger.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        ("stranger:Stranger/Reach-v0", "stranger:Stranger/Reach-v0"),
        ("stranger:stranger/reach", "stranger:Stranger/Reach-v1"),
        ("stranger:Stranger/Reach-v0[speed=2,flatten=true]", "stranger:Stranger/Reach-v0[flatten=true,speed=2]"),
        ("stranger:CartPole-v1", "CartPole-v1"),
        ("Pendulum[g=5.0]", "Pendulum-v1[g=5.0]"),
        ("CarRacing", "CarRacing-v3"),
    ],
)
@pytest.mark.usefixtures("stranger")
def test_an_id_may_name_its_module_and_keywords(typed: str, id: str) -> None:
    assert find_env(typed) == (id, ENVS["gymnasium"])
    assert find_env(id) == (id, ENVS["gymnasium"]), "what a worker is given"


@pytest.mark.parametrize(("typed", "id"), [("os:Hopper-v5", "Hopper-v5"), ("os:hopper", "Hopper-v5")])
def test_an_id_has_one_family_however_it_was_typed(typed: str, id: str) -> None:
    assert find_env(typed) == (id, ENVS["mujoco"]) == find_env(id)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("stranger:Stranger/Rech-v0", "the module stranger registers no 'Stranger/Rech-v0'; did you mean 'Stranger/"),
        ("strange:Reach-v0", "there is no module strange; install its package, or put its folder on PYTHONPATH"),
        ("stranger.sub:Reach-v0", "there is no module stranger.sub"),
        ("lacks:Reach-v0", "the module lacks does not import: ModuleNotFoundError: No module named 'nothing_here'"),
        ("breaks:Reach-v0", "the module breaks does not import: ValueError: two lines"),
        ("Stranger/Reach-v0", r"no environment is called.*\(one of another package: ENV=module:Id-v0\)"),
        ("stranger:Stranger/Reach-v0", r"has observations Dict\(.*; only flat vectors"),
        ("stranger:Stranger/Reach-v0[flatten=3]", "flatten=3 is not true or false"),
        ("stranger:Stranger/Reach-v0[sped=3]", "cannot be made: TypeError: .*'sped'"),
        ("stranger:Stranger/Reach-v0[speed]", "'speed' is not option=value"),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line(env: str, words: str, stranger: Path) -> None:
    (stranger / "lacks.py").write_text("import nothing_here")
    (stranger / "breaks.py").write_text("raise ValueError('two\\nlines')")
    with pytest.raises(UserError, match=words) as caught:
        plan(sweep_request(env=env, algo="ppo_clip", seeds="1"))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("stranger")
def test_goal_observations_are_flattened_where_asked() -> None:
    vector = ENVS["gymnasium"]().vector(find_env("stranger:Stranger/Reach-v1[flatten=true,speed=0.5]")[0], 2, 1)
    observation, _ = vector.reset(seed=3)
    inner = vector.unwrapped.envs[1].unwrapped
    assert inner.speed == 0.5
    np.testing.assert_array_equal(observation[1], [*inner.at, *inner.goal])
    vector.close()
    lake = ENVS["gymnasium"]().vector("FrozenLake-v1[flatten=true]", 2, 1)
    np.testing.assert_array_equal(lake.reset(seed=0)[0], np.eye(16, dtype=np.float32)[[0, 0]])
    assert lake.single_observation_space.dtype == np.float32
    lake.close()


def test_keywords_are_part_of_a_runs_id() -> None:
    texts = ["Pendulum-v1", "Pendulum-v1[g=5.0]", "Pendulum-v1[g=6.0]", "Pendulum-v1[max_episode_steps=9,g=6.0]"]
    runs = [plan(sweep_request(env=text, algo="ppo_clip", seeds="1")).runs[0] for text in texts]
    assert len({run.run_id for run in runs}) == len(texts)
    same = plan(sweep_request(env="pendulum[g=6.0,max_episode_steps=9]", algo="ppo_clip", seeds="1")).runs[0]
    assert same.run_id == runs[-1].run_id


def test_a_plugin_file_may_only_register_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DATA)
    for _ in range(2):  # where its module has been imported before, too
        with loaded_plugins(DATA / "register_only.py"):
            assert find_env("odd/both-v0") == ("Odd/Both-v0", ENVS["gymnasium"])
            assert plan(sweep_request(env="Odd/Both-v0", algo="ppo_clip", seeds="1")).runs


@pytest.mark.parametrize("text", ["import gymnasium", "import gymnasium, json"])
def test_a_plugin_file_that_registers_no_id_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "none.py").write_text(text)
    with loaded_plugins(tmp_path / "none.py"), pytest.raises(UserError, match="registers nothing"):
        find_env("Pendulum-v1")


def test_a_plugin_file_may_register_a_class_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODULE)
    with loaded_plugins(tmp_path / "own.py"):
        assert find_env("Stranger/Reach-v0")[0] == "Stranger/Reach-v0"


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_an_edit_of_a_file_with_gymnasium_ids_expires_its_runs(tmp_path: Path) -> None:
    file, question = (
        tmp_path / "own.py",
        sweep_request(env="Stranger/Reach-v0[flatten=true]", algo="ppo_clip", seeds="1"),
    )
    runs = []
    for text in (MODULE, f"{MODULE}# a comment\n", MODULE.replace("speed=1.0", "speed=2.0")):
        file.write_text(text)
        with loaded_plugins(file):
            runs.append(plan(question).runs[0])
            if len(runs) == 3:
                with pytest.raises(Changed, match=r"code of ENV=Stranger/Reach-v0\[flatten=true\] was edited since"):
                    simulation_of(runs[0].spec, tmp_path)
    first, comment, edit = (run.run_id for run in runs)
    assert first == comment != edit


REGISTRATION = """
import gymnasium
gymnasium.register(
    "Mine/Pendulum-v0",
    "gymnasium.envs.classic_control:PendulumEnv",
    max_episode_steps=9,
    additional_wrappers=(Half.wrapper_spec(),),
    kwargs={"g": 1.0},
)
"""
WRAPPER = """
import gymnasium
class Half(gymnasium.RewardWrapper, gymnasium.utils.RecordConstructorArgs):
    def __init__(self, env):
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
    def reward(self, reward):
        return 0.5 * reward
"""


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
@pytest.mark.parametrize("edit", ["max_episode_steps=9", '"g": 1.0', "(Half.wrapper_spec(),)", "0.5 * reward"])
def test_an_edit_of_a_registration_expires_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    """The class may be gymnasium's own; its time limit, keywords and the user's wrapper are not."""
    monkeypatch.syspath_prepend(tmp_path)
    changes = {"max_episode_steps=9": "max_episode_steps=8", '"g": 1.0': '"g": 2.0', "0.5 * reward": "0.25 * reward"}
    digests = []
    for is_edited in (False, True):
        text = f"{WRAPPER}|{REGISTRATION}"
        wrapper, registration = (text.replace(edit, changes.get(edit, "()")) if is_edited else text).split("|")
        (tmp_path / "half_reward.py").write_text(wrapper)
        (tmp_path / "mine.py").write_text(f"from half_reward import Half\n{registration}")
        with loaded_plugins(tmp_path / "mine.py"):
            digests += [plan(sweep_request(env="Mine/Pendulum-v0", algo="ppo_clip", seeds="1")).runs[0].spec.env_digest]
            digests += [code_digest("Mine/Pendulum-v0")]
        sys.modules.pop("half_reward", None)
    first, again, edited, _ = digests
    assert first == again != edited and len(first) == 16


def test_ids_of_gymnasium_itself_have_no_digest() -> None:
    own = [id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("gymnasium.envs.")]
    listed = [id for id in own if "Mine" not in id]
    assert len(listed) > 30 and not any(map(code_digest, listed))


@pytest.mark.long
def test_a_strangers_installed_package_trains_by_one_command(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name, text in PACKAGE.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    envs = ["Stranger/Reach-v1[flatten=true]", "stranger:Stranger/Reach-v0[flatten=true]"]
    done = subprocess.run(
        process(*SWEEP, "--env", f"Stranger/Reach[flatten=true],{envs[1]}", "--steps", "128", "--set", SMALL),
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join([str(site), str(ROOT)])),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "the environments of broken (strange:register) do not import" in done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("runs/*/run.json")]
    assert sorted(record["spec"]["env"] for record in records) == envs


WATCHED = """import sys; sys.path.insert(0, {data!r})
import oddenvs

first_step = oddenvs.Base.step

def step(self, action):
    open({flag!r}, "w").close()
    return first_step(self, action)

oddenvs.Base.step = step
"""


@pytest.mark.long
def test_an_environment_that_never_ends_an_episode_hears_a_stop(tmp_path: Path) -> None:
    """The first steps of a run are those of an evaluation, which has no end."""
    flag, watched = tmp_path / "stepped", tmp_path / "watched.py"
    watched.write_text(WATCHED.format(data=str(DATA), flag=str(flag)))
    plugins = f"{watched},{DATA / 'plug.py'}"
    asked = ["--env", "Odd/NoLimit-v0", "--plugin", plugins, "--steps", "512", "--set", SMALL]
    with subprocess.Popen(process(*SWEEP, *asked), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "gymnasium knows no time limit of Odd/NoLimit-v0" in running.stderr.readline()
        while not running.stderr.readline().startswith("start "):
            pass
        while not flag.exists() and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        rest = running.stderr.read()  # without end, if it is not heard
    assert running.returncode == 130 and "stopped" in rest and "Traceback" not in rest
