"""`staleharness show`: the policy of a finished run, acting, or the completions of its model."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..base.files import atomic_write
from ..base.text_formatting import printable
from ..errors import UserError, one_line
from .shared.arguments import Help, JsonOption, PluginOption, ResultsFolder, output_file

if TYPE_CHECKING:
    from ..language.task import LanguageTask
    from ..store.stored_run import StoredRun

MAX_FRAMES = 1000


@dataclass(frozen=True, kw_only=True)
class Command(JsonOption, PluginOption, ResultsFolder):
    """Play episodes with the saved policy of a finished run, or print completions of its model."""

    run: Annotated[str, Help("RUN")]
    """Id of a run in OUT, or the first digits of it; or the folder of a run."""
    episodes: Annotated[str, Help("N", "5")] = "5"
    """Number of episodes, with the most likely actions, or of test problems."""
    video: Annotated[str | None, Help("FILE")] = None
    """Render the first episode to this file, .gif or .mp4; needs imageio and the packages that the environment renders
    with."""


def handle(command: Command) -> int:
    from ..api import load_plugins
    from ..base.parsing import whole_number
    from ..base.system_info import package_version
    from ..control.evaluation import play
    from ..control.task import ControlTask
    from ..language.task import LanguageTask, check_extra
    from ..store.run_selection import find_run
    from ..task import find_env

    if (episodes := whole_number(command.episodes, "EPISODES")) < 1:
        raise UserError(f"EPISODES={episodes} must be at least 1")
    load_plugins(command.plugin)
    run = find_run(command.run, command.out)
    env, family = find_env(str(run.spec["env"]))
    if issubclass(family, LanguageTask):
        check_extra(env)
        return _show_completions(command, run, family(), episodes)
    if not issubclass(family, ControlTask):
        raise UserError(
            f"run {run.id} is a {family.kind} run; show plays control runs and prints completions of language runs"
        )
    policy = run.policy()
    video = output_file(command.video, "video", ".gif", ".mp4", option="VIDEO")
    if video is not None and os.path.lexists(video):
        raise UserError(f"VIDEO={command.video} exists and would be overwritten; give another name or move it away")
    if video is not None and package_version("imageio") is None:
        raise UserError("a video needs the package imageio: pip install 'imageio[ffmpeg]'")
    returns = play(family(), policy, env, episodes)
    mean = sum(returns) / len(returns)
    if video is not None:  # before anything is printed: an environment may not render here
        _write_video(video, run, env)
    if command.json:
        print(json.dumps({"run": run.id, "env": env, "returns": returns, "mean": mean}, sort_keys=True))
    else:
        print(f"{run.label} on {env}, K={run.spec['capacity']}, seed {run.seed} ({run.id})")
        for i, value in enumerate(returns, 1):
            print(f"episode {i}: return {value:,.1f}")
        print(f"mean {mean:,.1f}, with the most likely actions")
    return 0


def _show_completions(command: Command, run: StoredRun, task: LanguageTask, count: int) -> int:
    """Print greedy completions of test problems. Raises `UserError` where the run kept no model."""
    from ..language.simulation import greedy_answers
    from ..language.spec import LanguageSpec
    from ..running.run_identity import read_stored

    if command.video is not None:
        raise UserError(f"run {run.id} is a {task.kind} run, which cannot be rendered; leave out VIDEO")
    model = run.model()
    spec, _ = read_stored(run.spec)
    assert isinstance(spec, LanguageSpec)
    answers = greedy_answers(spec, task, model, count)
    if command.json:
        print(json.dumps({"run": run.id, "model": str(model), "answers": [a._asdict() for a in answers]}))
        return 0
    print(f"{run.label} on {spec.env}, K={spec.capacity}, seed {run.seed} ({run.id}); its model: {model}")
    for answer in answers:
        verdict = "right" if answer.correct else f"wrong, the answer is {answer.gold}"
        text = f"\n{answer.question}\n--- {verdict}\n{answer.completion}"
        print("\n".join(map(printable, text.split("\n"))))
    return 0


def _write_video(path: Path, run: StoredRun, env: str) -> None:
    from ..control.evaluation import pictures

    frames = pictures(run.policy(), env, MAX_FRAMES)
    import imageio  # type: ignore[import-untyped,unused-ignore]

    try:
        with atomic_write(path) as stream:
            imageio.mimsave(stream, frames, format=path.suffix[1:])
    except Exception as error:
        raise UserError(f"{path} cannot be written: {one_line(error)}") from error
    print(f"wrote {path}, {len(frames)} frames", file=sys.stderr)
