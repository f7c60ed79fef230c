"""A finished run keeps its policy: in a plain file, that acts as the run did, and that another run can start from."""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli
from needs import hint
from results_helper import write_run

import staleharness as sh
from staleharness.control.simulation import ControlSimulation
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.store.numpy_policy import POLICY, StoredPolicy, from_bytes, to_bytes
from staleharness.store.stored_run import StoredRun, read_run
from staleharness.task import find_env

SMALL = {"num_envs": 2, "num_steps": 32, "epochs": 1, "minibatches": 1, "evaluation_episodes": 2, "final_episodes": 2}
SMALL |= {"evaluations": 2, "hidden": [8]}
ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(0.1), "c": np.zeros((0,), np.float32)}


def train(out: Path, env: str = "Pendulum", **settings: Any) -> StoredRun:
    results = sh.sweep(env=env, k=2, algo="ppo_clip", seeds=1, steps=128, settings=SMALL | settings, out=out)
    return next(iter(results))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return train(tmp_path_factory.mktemp("kept") / "results")


def simulation(**settings: Any) -> ControlSimulation:
    values: dict[str, Any] = {"env": "Pendulum-v1", "algorithm": "ppo_clip", "capacity": 2, "steps": 128}
    spec = ControlSpec(**values | {**SMALL, "hidden": (8,)} | settings)
    made = find_env(spec.env)[1].simulation(find_env(spec.env)[1].identified(spec), Path())
    assert isinstance(made, ControlSimulation)
    return made


def test_the_file_is_what_its_format_says() -> None:
    content = to_bytes(ARRAYS, {"env": "x"})
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert header["a"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} and length % 8 == 0
    assert struct.unpack("<6f", content[8 + length : 8 + length + 24]) == (0, 1, 2, 3, 4, 5)
    arrays, texts = from_bytes(content, "here")
    assert texts == {"env": "x"} and arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    safetensors = pytest.importorskip("safetensors.numpy", reason=hint("llm"))
    np.testing.assert_array_equal(safetensors.load(content)["a"], ARRAYS["a"], strict=True)
    other, _ = from_bytes(safetensors.save(ARRAYS), "here")
    np.testing.assert_array_equal(other["b"], ARRAYS["b"], strict=True)


def forge(header: Any, numbers: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 40,
        (2**62).to_bytes(8, "little") + b"{}",
        forge([]),
        forge({"a": ENTRY}),
        forge({"a": ENTRY | {"dtype": "I8"}}, b"0000"),
        forge({"a": ENTRY | {"shape": [2]}}, b"0000"),
        forge({"a": ENTRY | {"data_offsets": [4, 0]}}, b"0000"),
        forge({"a": ENTRY | {"shape": [-1, -1]}}, b"0000"),
        forge({"a": 3}),
        forge({"a": ENTRY}, b"0000"),
        to_bytes(ARRAYS, {}),
    ],
    ids=range(12),
)
def test_a_file_that_is_no_policy_is_one_line(content: bytes) -> None:
    with pytest.raises(UserError, match=r"^here is not a (safetensors file|policy) of") as error:
        StoredPolicy.read(content, "here")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_stored_policy_acts_as_the_learner_does(env: str) -> None:
    trained = simulation(env=env)
    list(trained)
    stored = StoredPolicy.read(trained.artifacts()[POLICY], "here")
    obs = torch.randn(50, trained.policy.obs_dim, generator=torch.Generator().manual_seed(0)) * 3
    with torch.no_grad():
        mean, _ = trained.policy.actor(
            [*trained.policy.actor_weights, trained.policy.log_std], trained.policy.normalise(obs)
        )
    expected = mean.argmax(-1).numpy() if env.startswith("Cart") else mean.clamp(-2.0, 2.0).numpy()
    np.testing.assert_allclose(stored.act(obs.numpy()), expected, atol=1e-5)
    np.testing.assert_allclose(stored.act(obs[3].numpy()), expected[3], atol=1e-5)
    np.testing.assert_allclose(stored.value(obs.numpy()), trained.policy.values(obs).numpy(), atol=1e-4)
    rng = np.random.default_rng(0)
    draws = np.stack([stored.act(obs[:2].numpy(), rng) for _ in range(4000)])
    if env.startswith("Cart"):
        np.testing.assert_allclose(draws.mean(0), mean.softmax(-1)[:2, 1].numpy(), atol=0.04)
    else:
        assert abs(draws.std(0).mean() - float(trained.policy.log_std.exp())) < 0.1
    trained.close()


def test_a_finished_run_has_its_last_policy(run: StoredRun, cli: Cli) -> None:
    stored = run.policy()
    assert (stored.env, stored.hidden) == ("Pendulum-v1", (8,))
    assert POLICY in json.loads((run.path / "manifest.json").read_text())
    code, out, _ = cli("show", str(run.path), "--episodes", "2", "--json")
    assert code == 0
    expected = run.record["scores"]["deterministic"]["returns"]
    np.testing.assert_allclose(json.loads(out)["returns"], expected, rtol=0.02)
    code, out, _ = cli("show", run.id, "--out", str(run.path.parents[1]), "--episodes", "1")
    assert code == 0 and "episode 1: return -" in out
    code, _, err = cli("show", "0" * 12, "--out", str(run.path.parents[1]))
    assert code == 2 and "there is no finished run" in err


def test_a_run_of_a_kind_that_keeps_no_policy_is_not_played(tmp_path: Path, cli: Cli) -> None:
    run = write_run(tmp_path / "results", "spo", env="bit-chain")
    code, out, err = cli("show", run.id, "--out", str(tmp_path / "results"))
    assert (code, out) == (2, "") and err.endswith(
        "is a chain run; show plays control runs and prints completions of language runs\n"
    )


def test_a_video_is_made_before_anything_is_printed(
    run: StoredRun, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [np.zeros((4, 4, 3), np.uint8)] * 2
    imageio = SimpleNamespace(mimsave=lambda stream, frames, format: stream.write(b"GIF"))
    monkeypatch.setitem(sys.modules, "imageio", imageio)
    monkeypatch.setattr("staleharness.base.system_info.package_version", lambda name: "2.37")
    monkeypatch.setattr("staleharness.control.evaluation.pictures", lambda *_: frames)
    words = ["show", str(run.path), "--episodes", "1", "--json", "--video"]
    code, out, err = cli(*words, str(tmp_path / "a b.gif"))
    assert code == 0 and json.loads(out)["run"] == run.id and "a b.gif, 2 frames" in err
    assert (tmp_path / "a b.gif").read_bytes() == b"GIF"
    code, out, err = cli(*words, str(tmp_path / "a b.gif"))
    assert (code, out) == (2, "") and "a b.gif exists and would be overwritten" in err
    code, out, err = cli(*words, str(tmp_path / "nowhere" / "a.gif"))
    assert (code, out) == (2, "") and "VIDEO=" in err and "there is no folder" in err
    code, out, err = cli(*words, "a.webm")
    assert (code, out) == (2, "") and "VIDEO='a.webm' is not the name of a video" in err

    def fail(*_: object) -> None:
        raise UserError("Pendulum-v1 cannot be rendered here")

    monkeypatch.setattr("staleharness.control.evaluation.pictures", fail)
    code, out, err = cli(*words, str(tmp_path / "b.gif"))
    assert (code, out) == (2, "") and "cannot be rendered" in err


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("no codec")])
def test_a_video_that_is_not_finished_leaves_no_file(
    error: Any, run: StoredRun, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(stream: Any, frames: object, format: str) -> None:
        stream.write(b"GI")
        raise error

    monkeypatch.setitem(sys.modules, "imageio", SimpleNamespace(mimsave=save))
    monkeypatch.setattr("staleharness.base.system_info.package_version", lambda name: "2.37")
    monkeypatch.setattr("staleharness.control.evaluation.pictures", lambda *_: [])
    code, out, _ = cli("show", str(run.path), "--episodes", "1", "--video", str(tmp_path / "a.gif"))
    assert (code, out) == ((130, "") if error is KeyboardInterrupt else (2, ""))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_that_was_changed_or_lost_leaves_the_run(run: StoredRun, tmp_path: Path) -> None:
    import shutil

    path = tmp_path / "runs" / run.id
    shutil.copytree(run.path, path)
    (path / POLICY).write_bytes((path / POLICY).read_bytes()[:-1] + b"?")
    copy = read_run(path)
    assert isinstance(copy, StoredRun)
    with pytest.raises(UserError, match="differs from the manifest"):
        copy.policy()
    (path / POLICY).unlink()
    assert isinstance(read_run(path), StoredRun)
    with pytest.raises(UserError, match=r"has no policy\.safetensors"):
        copy.policy()


def test_keep_moves_no_id_and_none_leaves_no_file(
    run: StoredRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = train(tmp_path / "results", keep="none")
    assert plain.id == run.id and not (plain.path / POLICY).exists()
    assert plain.record["metrics_sha256"] == run.record["metrics_sha256"]
    assert train(tmp_path / "results", keep="none").id == run.id and "keep=" not in caplog.text
    assert train(tmp_path / "results").id == run.id and "1 run is stored with another keep=" in caplog.text


def test_the_best_policy_is_that_of_the_best_evaluation() -> None:
    trained = simulation(keep="best", evaluations=2)
    scores, files = [], []
    original = trained.evaluate

    def note() -> Any:
        found = original()
        scores.append(found.mean("sampled"))
        files.append(trained.export(trained.policy, trained.moments))
        return found

    trained.evaluate = note  # type: ignore[method-assign]
    list(trained)
    assert len(scores) == 3 and len(set(files)) == 3
    assert trained.artifacts()[POLICY] == files[int(np.argmax(scores))]
    again = simulation(keep="best", evaluations=2)
    again.load_state_dict(trained.state_dict())
    assert again.best == trained.best
    trained.close(), again.close()


def test_a_run_that_began_with_another_keep_has_no_best_policy() -> None:
    began, resumed = simulation(keep="last"), simulation(keep="best")
    next(iter(began))
    with pytest.raises(ValueError, match="began with another keep"):
        resumed.load_state_dict(began.state_dict())
    began.close(), resumed.close()


def test_a_run_starts_from_a_stored_policy(run: StoredRun, tmp_path: Path) -> None:
    started = simulation(start=str(run.path))
    assert started.export(started.policy, started.moments) == (run.path / POLICY).read_bytes()
    scores = started.evaluate().returns["deterministic"]
    np.testing.assert_allclose(scores, run.record["scores"]["deterministic"]["returns"], rtol=1e-6)
    started.close()
    plans = [
        sh.plan(env="Pendulum", k=2, algo="ppo_clip", seeds=1, steps=128, settings=SMALL | {"start": start}).runs[0]
        for start in (str(run.path), str(run.path / POLICY))
    ]
    assert plans[0].run_id == plans[1].run_id != run.id, "by content, wherever it lies"
    other = tmp_path / "copy.safetensors"
    other.write_bytes((run.path / POLICY).read_bytes())
    moved = sh.plan(env="Pendulum", k=2, algo="ppo_clip", seeds=1, steps=128, settings=SMALL | {"start": str(other)})
    assert moved.runs[0].run_id == plans[0].run_id
    assert plans[0].spec.to_dict()["start_digest"]
    second = train(tmp_path / "results", start=str(run.path))
    assert second.record["spec"]["start_digest"] == plans[0].spec.to_dict()["start_digest"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"start": "nowhere"}, "start=nowhere: there is no policy; give the folder of a finished run"),
        ({"hidden": [9]}, r"its policy has hidden=\[8\], and this run \[9\]"),
    ],
)
def test_a_policy_that_cannot_be_started_from_is_one_line(settings: Any, words: str, run: StoredRun) -> None:
    with pytest.raises(UserError, match=words):
        sh.plan(env="Pendulum", algo="ppo_clip", settings=SMALL | {"start": str(run.path)} | settings)
    with pytest.raises(
        UserError, match=r"its policy is for 3 observations and 1 action, and CartPole-v1 has 4 obs.* 2 ch"
    ):
        sh.plan(env="CartPole", algo="ppo_clip", settings=SMALL | {"start": str(run.path)})
    with pytest.raises(UserError, match=r"its actor has layers"):
        simulation(env="MountainCarContinuous-v0", start=str(run.path))


def test_published_specs_have_no_start() -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip")
    assert replace(spec, keep="none", start="x").run_id("a", "b") == spec.run_id("a", "b")
    assert replace(spec, start_digest="0").run_id("a", "b") != spec.run_id("a", "b")
