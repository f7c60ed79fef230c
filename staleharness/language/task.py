"""Base class of language tasks: problems with verifiable answers, and the model that solves them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from ..base.artifact_cache import build_once, check_cache
from ..base.console_log import notice
from ..base.cpp_library import compiler
from ..base.files import digest
from ..base.parsing import user_path
from ..base.plugins import is_builtin
from ..base.system_info import package_version
from ..errors import UserError, missing_extra, shorten
from ..lag import read_lag, schedule_of
from ..pipeline_lag_model import PipelineLag
from ..spec import RunSpec
from ..store.stored_run import read_run
from ..task import Task
from .answer_grading import Grade, find_extractor, grade
from .decoder_interface import check_decoder_name, check_sampler, decoder_digest
from .model.gguf_conversion import dequantise, gguf_of, header
from .model.model_preflight import base_of, check_fits, check_model, check_replay, has_template, is_chat, rounding
from .problem import Grader, Problem
from .problem_files import data_digest, folder_digest, write_rows
from .prompt_formatting import find_prompt
from .spec import LanguageSpec

PACKAGES = ("transformers", "tokenizers", "safetensors")  # of the extra llm
LARGEST_REWARD = 1e6  # of a task's own grader: float32 distinguishes larger ones too coarsely


def check_extra(env: str) -> None:
    """Raise `UserError` unless the packages are installed that every model is loaded with."""
    _look_up_packages(package_version, env)


@functools.lru_cache
def _look_up_packages(version: Callable[[str], str | None], env: str) -> None:  # an error is not cached
    if any(version(name) is None for name in PACKAGES):
        raise missing_extra(f"ENV={env}", "llm")


def resolve_paths(spec: LanguageSpec, folder: Path) -> LanguageSpec:
    """Return the spec with absolute paths of model and data; a model that is not under `folder` stays a hub name."""
    model, data = (user_path(text) for text in (spec.model, spec.data))
    is_path = (folder / model).exists()
    local_spec = replace(
        spec,
        model=str((folder / model).resolve()) if spec.model and is_path else spec.model,
        data=str((folder / data).resolve()) if spec.data else "",
    )
    return with_usual_columns(local_spec)


def with_usual_columns(spec: LanguageSpec) -> LanguageSpec:
    """Return the spec with its data as rows of question and answer, where it names other columns: in the cache, written
    once for the content of the data. Raises `UserError` for rows that lack the columns."""
    if not spec.question:
        return spec
    columns = spec.question, spec.answer
    key = hashlib.sha256(json.dumps([folder_digest(spec.data), *columns]).encode()).hexdigest()[:16]
    folder = build_once("data", key, lambda path: write_rows(user_path(spec.data), columns, path))
    return replace(spec, data=str(folder), question="", answer="")


def changes_within_rows(spec: LanguageSpec) -> bool:
    """Return whether a completion may have tokens of several versions."""
    model, schedule = read_lag(spec.lag), schedule_of(spec)
    if schedule is not None:
        return bool((schedule.oldest != schedule.newest).any())
    return bool((model.drawn and model.within_rows) or (model.real and getattr(model, "fetch", 0)))


def model_digest(model: str) -> str:
    """Return a digest, 16 hex digits, of a model's files (of an adapter, with its base's); empty for one on the hub."""
    if (base := base_of(model)) is not None:
        return hashlib.sha256(f"{folder_digest(model)} {model_digest(base) or base}".encode()).hexdigest()[:16]
    file = gguf_of(model)
    return folder_digest(model) if file is None else digest(file)[:16]


def _from_run(settings: Mapping[str, Any], reads_numbers: bool) -> Mapping[str, Any]:
    """Fill in the model that the run in the folder `start` has kept, prompted and, with `reads_numbers`, read as there.
    Raises `UserError`."""
    start = str(settings["start"])
    if settings.get("model"):
        raise UserError(f"start={start} names the model; leave out MODEL={settings['model']}")
    folder = user_path(start)
    run = read_run(folder.resolve()) if folder.is_dir() else f"there is no folder {start}"
    if isinstance(run, str):
        raise UserError(f"start={start} is not a finished run ({shorten(run)}); give results/runs/<id>")
    chat = bool(run.spec.get("chat_template", False))
    names = ("prompt_format", "extractor") if reads_numbers else ("prompt_format",)
    prompts = {name: value for name in names if (value := run.spec.get(name))}
    return {"chat_template": chat, **prompts, **settings, "start": str(run.path), "model": str(run.model())}


class LanguageTask(Task):
    """A family of prompts with verifiable answers.

    prompt_format: name of the prompt where the run names none.
    """

    kind: ClassVar[str] = "language"
    settings: ClassVar[type[RunSpec]] = LanguageSpec
    measures: ClassVar[dict[str, str]] = {"sampled": "sampled accuracy", "deterministic": "greedy accuracy"}
    score: ClassVar[str] = "deterministic"
    normalise: ClassVar[str] = "raw"
    axes: ClassVar[dict[str, str]] = {"N": "minibatches"}
    inflight: ClassVar[bool] = True
    real_time: ClassVar[bool] = True
    paced: ClassVar[bool] = True
    mismatch: ClassVar[bool] = True
    prompt_format: ClassVar[str] = "verl"
    mixture: ClassVar[bool] = False  # the task's own model is a mixture of experts
    provides: ClassVar[frozenset[str]] = frozenset({"groups", "logit_norm", "reference"})

    entry_point: ClassVar[str] = "staleharness.language.simulation:LanguageSimulation"
    preload: ClassVar[tuple[str, ...]] = (
        "staleharness.language.simulation",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.models.qwen2.modeling_qwen2",
    )

    @classmethod
    def check_class(cls, where: str) -> None:
        super().check_class(where)
        if cls.problems is LanguageTask.problems:
            raise UserError(f"{where} does not define problems(self, spec, split), a list of problems")
        if cls.model is LanguageTask.model and cls.weights is LanguageTask.weights:
            raise UserError(f"{where} does not define model(self, spec, progress), the name or folder of a model")

    @classmethod
    def on_this_machine(cls, spec: RunSpec) -> RunSpec:
        assert isinstance(spec, LanguageSpec)
        return with_usual_columns(spec)

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        super().check(spec)
        check_extra(spec.env)
        assert isinstance(spec, LanguageSpec)
        model = read_lag(spec.lag)
        if spec.dynamic_sampling and not model.drawn:
            raise UserError(f"dynamic_sampling draws more groups than LAG={spec.lag} plans; set it to false")
        if isinstance(model, PipelineLag) and model.online:
            model.pipeline(spec.demand)
        if model.real and spec.device != "cpu":
            raise UserError(f"LAG={spec.lag} acts on the CPU, where its replay is bit-identical; use DEVICE=cpu")
        if spec.extractor and not cls.reads_numbers():
            raise UserError(f"ENV={spec.env} grades completions itself; leave out extractor={shorten(spec.extractor)}")
        find_extractor(cls.extractor(spec))
        check_decoder_name(spec.decoder)
        check_sampler(spec)
        if spec.model:
            check_model(spec)
        if spec.data and not cls._reads_data(spec):
            raise UserError(
                f"DATA={shorten(spec.data)}: ENV={spec.env} has its own problems and reads none; leave it out"
            )
        if spec.routing_replay != "none":
            check_replay(spec, cls.mixture)
            if changes_within_rows(spec):
                raise UserError(
                    f"routing_replay={spec.routing_replay}: LAG={spec.lag} changes weights inside a completion, after "
                    "which other experts read its earlier tokens again; give a lag model of whole completions"
                )

    @classmethod
    def check_here(cls, spec: RunSpec) -> None:
        assert isinstance(spec, LanguageSpec)
        check_extra(spec.env)
        native = "native" in (spec.learner, spec.decoder)
        if native:
            compiler()
        makes_model = not spec.model and is_builtin(cls, "envs")  # a task of one's own may name one of the hub
        if native or spec.warm_start or makes_model or base_of(spec.model) is not None or gguf_of(spec.model):
            check_cache()
        if spec.model:
            check_fits(spec)

    @classmethod
    def completed(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fill in settings: chat models get their template, and a CPU gets the fastest decoder. In bfloat16 that is one
        without torch's attention, which takes several times as long there; for a named model, prepacked weights."""
        if settings.get("start"):
            settings = _from_run(settings, cls.reads_numbers())
        model = settings.get("model")
        if settings.get("device", "cpu") == "cpu":
            if settings.get("learner") == "native":
                settings = {"decoder": "native", **settings}
            elif settings.get("dtype") == "bfloat16":
                settings = {"decoder": "shared_prompts", **settings}
            elif model:
                settings = {"decoder": "packed_weights", **settings}
        if not isinstance(model, str) or "chat_template" in settings:
            return settings
        if not is_chat(model):
            if has_template(model):
                notice(
                    f"MODEL={model} has a chat template, which is not used, as its name does not say that it is a chat "
                    "model; if it is one, SET=chat_template=true"
                )
            return settings
        notice(f"MODEL={model} is a chat model: prompts go through its template; SET=chat_template=false for none")
        return {**settings, "chat_template": True}

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """Identify folders and a third-party decoder by their content: different content makes a different run."""
        assert isinstance(spec, LanguageSpec)
        return replace(
            spec,
            model_digest=model_digest(spec.model),
            data_digest=data_digest(spec.data),
            decoder_digest=decoder_digest(spec.decoder),
        )

    @classmethod
    def _reads_data(cls, spec: LanguageSpec) -> bool:
        """Return whether the problems come from the folder `data`: without the folder there are then none."""
        try:
            cls().problems(replace(spec, data=str(Path(os.devnull, "none"))), "train")
        except Exception:  # of whatever a third party's task reads its problems with
            return True
        return False

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        """Return the problems of one split, in a fixed order. Raises `UserError` where they are not available."""
        raise NotImplementedError(f"{type(self).__name__} must define problems(spec, split)")

    def grade(self, spec: LanguageSpec, problem: Problem, text: str) -> Grade:
        """Return the grade of a completion: by default whether the run's extractor reads the problem's answer, a
        number, from it. A task that defines this has answers of any text and its own rule; same text, same grade."""
        return grade(text, problem.answer, self.extractor(spec))

    def grader(self, spec: LanguageSpec) -> Grader:
        """Return `grade` for a run, which then raises `UserError` where the task returns no `Grade` of two bools, or a
        reward that is no number."""

        def grade_completion(problem: Problem, text: str) -> Grade:
            result = self.grade(spec, problem, text)
            where = f"ENV={spec.env}: grade() returned {shorten(repr(result))}"
            values = (result.correct, result.has_answer) if isinstance(result, Grade) else (None,)
            if not all(isinstance(value, bool | np.bool_) for value in values):
                raise UserError(f"{where}, not Grade(correct, has_answer) of two bools")
            reward = result.reward
            if reward is not None:
                if not isinstance(reward, float | int | np.floating | np.integer) or not abs(reward) <= LARGEST_REWARD:
                    raise UserError(f"{where}; reward must be a number of at most ±{LARGEST_REWARD:g}, or None")
                reward = float(reward)
            return Grade(bool(result.correct), bool(result.has_answer), reward)

        return grade_completion

    @classmethod
    def reads_numbers(cls) -> bool:
        """Return whether answers are numbers, read by an extractor: the task defines no `grade`."""
        return cls.grade is LanguageTask.grade

    @classmethod
    def extractor(cls, spec: LanguageSpec) -> str:
        """Return the name of the rule that reads a number from a completion: the run's or its prompt format's."""
        return spec.extractor or find_prompt(spec.prompt_format or cls.prompt_format).extractor

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        """Return the hub name or folder of model and tokenizer for transformers. Called by every run; may take long,
        with reports to `progress`."""
        raise NotImplementedError(f"{type(self).__name__} must define model(spec, progress)")

    def weights(self, spec: LanguageSpec, progress: Callable[[str], None]) -> tuple[str, list[str]]:
        """Return (hub name or folder that transformers loads, warnings for readers of the results)."""
        source: Any = self.model(spec, progress)
        if not isinstance(source, str | Path) or not str(source):
            raise UserError(
                f"{spec.env}: model returns {shorten(repr(source))}, not a hub name or folder; is MODEL= missing?"
            )
        source = str(source)
        if (base := base_of(source)) is not None:
            from .model.model_loading import merge_adapter

            return str(merge_adapter(source, base, model_digest(source), progress)), []
        if (file := gguf_of(source)) is None:
            return source, rounding(source)
        kind = header(source, file).quantisation
        return str(dequantise(source, file, progress)), [
            f"training began from rounded weights: those of {file.name} are stored as {kind} and were dequantised"
        ]
