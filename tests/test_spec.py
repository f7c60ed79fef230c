"""Requests are read strictly, written canonically, and named by a hash of all fields."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staleharness.base.parsing import (
    LARGEST,
    PluginChoice,
    canonical_json,
    format_value,
    parse_assignments,
    parse_choice,
    parse_value,
    split_list,
    whole_number,
)
from staleharness.base.typed_values import build, convert
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.language.spec import LanguageSpec
from staleharness.running.plan import MAX_RUNS, plan, plan_as_data
from staleharness.spec import RunSpec, later
from staleharness.study import SweepRequest, sweep_request

names = st.from_regex(r"[a-z][a-z0-9_.-]{0,12}", fullmatch=True)
words = names.filter(lambda word: isinstance(parse_value(word), str))  # `nan`, `true` and `inf` mean something
numbers = st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False, width=32))
values = st.one_of(numbers, st.booleans(), words)


def test_a_phase_has_the_gradient_steps_of_all_its_epochs() -> None:
    spec = RunSpec("toy", "ppo_clip", steps=24, minibatches=4, epochs=3)
    assert spec.steps_per_phase == 12 and spec.phases == 2


@given(names, st.dictionaries(names, values, max_size=4))
def test_an_algorithm_is_read_back_from_its_own_label(name: str, options: dict[str, Any]) -> None:
    choice = PluginChoice(name, options)
    again = parse_choice(choice.label)
    assert (again.name, again.label) == (name, choice.label)
    assert again.options == options
    assert {key: type(value) for key, value in again.options.items()} == {k: type(v) for k, v in options.items()}


@given(st.lists(names, max_size=5), st.sampled_from([",", " ", ", ", "\n", " ,\t"]))
def test_a_list_is_split_at_commas_and_white_space(parts: list[str], separator: str) -> None:
    assert split_list(separator.join(parts)) == parts


@pytest.mark.parametrize("text", [",", "a,", ",a", "a,,b", "a, ,b", " , "])
def test_a_comma_with_nothing_beside_it_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="empty entry"):
        split_list(text)
    with pytest.raises(UserError, match="empty entry"):
        parse_assignments(text.replace("a", "x=1").replace("b", "y=2"), "SET")


def test_white_space_alone_is_an_empty_list() -> None:
    assert split_list("") == split_list(" \n") == []


def test_brackets_hold_a_list_together() -> None:
    assert split_list("a,b[c=1,d=[2, 3]] e") == ["a", "b[c=1,d=[2, 3]]", "e"]
    assert parse_assignments("hidden=[64, 32],epochs=3", "SET") == {"hidden": [64, 32], "epochs": 3}


def test_a_value_in_double_quotes_is_whole() -> None:
    assert parse_assignments('a="file:b c, d.txt",e=f["g"],h="[", i="\\"j k" l="m', "SET") == {
        "a": "file:b c, d.txt",
        "e": 'f["g"]',
        "h": "[",
        "i": '"j k',
        "l": '"m',
    }
    assert parse_choice('a[b="c, d]"]').options == {"b": "c, d]"}


@pytest.mark.parametrize("value", ["b c", "b,c", "[", "é 🙂", 'b "c"', "\\ \t"])
def test_a_value_that_a_list_would_split_is_written_in_quotes(value: str) -> None:
    label = PluginChoice("a", {"b": value, "d": 1}).label
    assert split_list(f"{label},e") == [label, "e"] and parse_choice(label).options == {"b": value, "d": 1}


@pytest.mark.parametrize("text", ["a]b[c", "a[b", "a]", "[[a]", "x[y]]"])
def test_a_bracket_without_its_pair_is_said(text: str) -> None:
    with pytest.raises(UserError, match="bracket"):
        split_list(text)


@given(st.text(max_size=30))
def test_any_text_is_an_algorithm_or_one_line(text: str) -> None:
    try:
        parse_choice(text)
    except UserError as error:
        assert "\n" not in str(error)


@given(st.text(max_size=30))
def test_any_text_is_a_whole_number_or_one_line(text: str) -> None:
    try:
        assert abs(whole_number(text, "K")) <= LARGEST
    except UserError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "number"), [("8", 8), (" 8 ", 8), ("1_000", 1000), ("1e6", 10**6), ("2E+3", 2000), ("-3", -3), ("0", 0)]
)
def test_whole_numbers_may_be_typed_as_people_do(text: str, number: int) -> None:
    assert whole_number(text, "K") == number


@pytest.mark.parametrize("text", ["", "_", "1.5", "1e-3", "1e400", "8x", "１", "9" * 5000, "1,000", "nan"])
def test_a_bad_whole_number_is_one_short_line(text: str) -> None:
    with pytest.raises(UserError, match="K=") as error:
        whole_number(text, "K")
    assert len(str(error.value)) < 150


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("3", 3),
        ("3.0", 3.0),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("0x10", 16),
        (".5e1", 5.0),
        ("phase", "phase"),
        ('"phase"', "phase"),
        ("1.", "1."),
        ("a b", "a b"),
        ("9" * 5000, "9" * 5000),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_are_read_as_toml_or_else_as_text(text: str, value: Any) -> None:
    assert parse_value(text) == value and type(parse_value(text)) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-3, 1e22, 0.1, 3, True, "nan", "true", "1e5", "phase", "a b"])
def test_a_formatted_value_is_parsed_as_itself(value: Any) -> None:
    result = parse_value(format_value(value))
    assert result == value and type(result) is type(value)


def test_an_option_given_twice_is_said() -> None:
    with pytest.raises(UserError, match="delta more than once"):
        parse_choice("vaco[delta=0.1,delta=0.2]")


@pytest.mark.parametrize(
    ("value", "hint", "result"),
    [
        (3, int, 3),
        (1e6, int, 1_000_000),
        (3, float, 3.0),
        (0.5, float, 0.5),
        (True, bool, True),
        ("x", str, "x"),
        ([1, 2], tuple[int, ...], (1, 2)),
        ("a", Literal["a", "b"], "a"),
        (None, int | None, None),
        (3, int | None, 3),
    ],
)
def test_plain_data_becomes_the_annotated_type(value: Any, hint: Any, result: Any) -> None:
    assert convert(value, hint, "x") == result and type(convert(value, hint, "x")) is type(result)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (0.5, int),
        (True, int),
        ("3", int),
        (None, int),
        (10**30, int),
        (1e30, int),
        (math.nan, int),
        (math.inf, int),
        (math.nan, float),
        (math.inf, float),
        (-math.inf, float),
        (10**400, float),
        (True, float),
        ("1", float),
        (1, bool),
        ("true", bool),
        (1, str),
        (3, tuple[int, ...]),
        ([0.5], tuple[int, ...]),
        ("c", Literal["a", "b"]),
        (1, Literal[True]),
        ([], Literal["a"]),
        ({}, str),
        (3, dict[str, Any]),
    ],
)
def test_what_was_not_meant_is_refused_with_its_place(value: Any, hint: Any) -> None:
    with pytest.raises(UserError, match="over there"):
        convert(value, hint, "over there")


def test_an_unknown_key_gets_the_nearest_one() -> None:
    with pytest.raises(UserError, match="did you mean 'capacity'"):
        build(ControlSpec, {"env": "Hopper-v5", "algorithm": "spo", "capcity": 3}, "here")


def test_one_phase_and_one_epoch_are_singular() -> None:
    spec = ControlSpec("e", "a", steps=128, num_envs=2, num_steps=64, epochs=1, minibatches=2)
    assert spec.size == "1 phase of 2 x 64 steps = 128 steps, 1 epoch x 2 minibatches"


SPEC = ControlSpec(env="Hopper-v5", algorithm="spo", hyper={"a": 0.1}, capacity=4, steps=1_000_000)


def test_canonical_json_has_one_form_and_no_nan() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(math.nan)
    assert ControlSpec.from_dict(json.loads(SPEC.to_json())) == SPEC


def test_the_same_spec_has_the_same_id_for_ever() -> None:
    assert SPEC.run_id("algorithm", "env") == ControlSpec.from_dict(SPEC.to_dict()).run_id("algorithm", "env")
    assert len(SPEC.run_id("a", "b")) == 12


OTHER: dict[str, Any] = {
    "env": "Ant-v5",
    "algorithm": "vaco",
    "hyper": {"a": 0.2},
    "lag": "fixed:1",
    "mechanism": "replay",
    "assignment": "episode",
    "density": "mixture",
    "observation_statistics": "frozen",
    "hidden": (32,),
    "step_size": "ess",
    "device": "cuda",
    "discount": 0.9,
    "gae_lambda": 0.9,
    "value_function": "behaviour",
    "learner": "native",
    "mismatch": "fp8",
    "behaviour": "version",
    "start_digest": "0123456789abcdef",
    "env_digest": "0123456789abcdef",
    "keep": "none",
    "start": "results/runs/0123456789ab",
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ControlSpec)])
def test_every_field_is_part_of_the_id(name: str) -> None:
    spec = dataclasses.replace(SPEC, fill_phases=1) if name == "fill_learning_rate" else SPEC
    now = getattr(spec, name)
    other = OTHER[name] if name in OTHER else not now if isinstance(now, bool) else now + 1
    assert other != now
    moves = dataclasses.replace(spec, **{name: other}).run_id("a", "b") != spec.run_id("a", "b")
    assert moves is (name not in ("keep", "start")), "no number depends on these: a policy counts by its digest"


@dataclasses.dataclass(frozen=True)
class LaterField(ControlSpec):
    """The spec some years on: fields that runs exist without, at what they did then."""

    warm: bool = later(False, before=False)
    width: tuple[int, ...] = later((), before=())


@dataclasses.dataclass(frozen=True)
class MovedDefault(LaterField):
    """And later still: new runs are warm unless told otherwise."""

    warm: bool = later(True, before=False)


def test_a_field_added_later_leaves_the_id_while_at_before() -> None:
    earlier, written = SPEC.run_id("a", "b"), SPEC.to_dict()
    assert LaterField.from_dict(written).run_id("a", "b") == earlier
    assert LaterField.from_dict({**written, "warm": False, "width": []}).run_id("a", "b") == earlier
    assert LaterField.from_dict(written).to_dict() == {**written, "warm": False, "width": []}, "yet it is on record"
    other = {LaterField.from_dict({**written, **said}).run_id("a", "b") for said in ({"warm": True}, {"width": [1]})}
    assert len(other | {earlier}) == 3


def test_a_default_that_moves_away_from_before_is_a_changed_id() -> None:
    written = SPEC.to_dict()
    warm = LaterField.from_dict({**written, "warm": True})
    assert MovedDefault.from_dict(written).run_id("a", "b") == warm.run_id("a", "b") != SPEC.run_id("a", "b")
    assert MovedDefault.from_dict({**written, "warm": False}).run_id("a", "b") == SPEC.run_id("a", "b")


def test_a_correction_is_part_of_the_ids_of_what_it_moved() -> None:
    """Ids of runs from before, to which the correction made no difference, stay; the others count no more."""

    @dataclasses.dataclass(frozen=True)
    class SpecWithCorrections(ControlSpec):
        def corrections(self) -> set[str]:
            return {"few environments"} if self.num_envs < 4 else set()

    def of(cls: type[ControlSpec], **settings: Any) -> str:
        return cls.from_dict({**SPEC.to_dict(), **settings}).run_id("a", "b")

    assert of(SpecWithCorrections, num_envs=8) == of(ControlSpec, num_envs=8)
    assert of(SpecWithCorrections, num_envs=2) != of(ControlSpec, num_envs=2)
    assert not SPEC.corrections() and dataclasses.replace(SPEC, reset_each_phase=True).corrections()
    assert LanguageSpec(env="gsm8k", algorithm="tis", prompt_format="lm_eval_5shot").corrections()


def test_each_plugin_file_is_part_of_the_id() -> None:
    ids = {SPEC.run_id(*hashes) for hashes in (("a", "b"), ("b", "a"), ("a", "a"), ("b", "b"))}
    assert len(ids) == 4


@given(st.integers(1, 5000), st.integers(1, 100))
def test_evaluation_is_evenly_spaced_and_ends_with_the_last_phase(phases: int, evaluations: int) -> None:
    spec = ControlSpec("e", "a", steps=phases * 4, num_envs=2, num_steps=2, minibatches=1, evaluations=evaluations)
    chosen = spec.evaluation_phases()
    assert spec.phases == phases
    assert chosen[-1] == phases - 1 and chosen[0] >= 0
    assert len(chosen) == min(phases, evaluations)
    gaps = [b - a for a, b in itertools.pairwise(chosen)]
    assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("preset", ControlSpec.presets)
def test_presets_divide_into_whole_phases_and_minibatches(preset: str) -> None:
    spec = ControlSpec.from_dict({"env": "Hopper-v5", "algorithm": "spo", **ControlSpec.presets[preset]})
    assert spec.steps == spec.phases * spec.steps_per_phase
    assert spec.steps_per_phase % spec.minibatches == 0
    assert spec.num_envs >= spec.minibatches  # whole rows, for methods that realign each step


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 0}, "epochs=0 must be positive"),
        ({"discount": 1.5}, "discount=1.5"),
        ({"seed": -1}, "seed=-1"),
        ({"hidden": [0]}, "hidden"),
        ({"steps": 10}, "less than one phase"),
        ({"minibatches": 10**6}, "minibatches"),
        ({"num_envs": 2, "num_steps": 8, "minibatches": 9}, "advantage of 0 and teaches nothing; give 8 or less"),
        ({"threads": 10**6}, "threads"),
        ({"value_clip": -1.0}, "value_clip"),
    ],
)
def test_a_value_that_cannot_work_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        ControlSpec.from_dict({"env": "Hopper-v5", "algorithm": "spo", **changes})


def test_a_spec_file_asks_the_same_as_flags_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(
        'env = ["Hopper", "Ant"]\nalgorithm = "vaco[delta=0.1]"\ncapacity = [1, 4]\nseeds = 2\nlag = "uniform"\n'
        'preset = "standard"\n[settings]\nsteps = 1e5\nlearning_rate = 1e-4\nhidden = [32, 32]\n'
    )
    flags = sweep_request(
        env="Hopper,Ant",
        algo="vaco[delta=0.1]",
        k="1,4",
        seeds="2",
        lag="uniform",
        preset="standard",
        steps="1e5",
        settings="learning_rate=1e-4,hidden=[32,32]",
    )
    read = sweep_request(spec_file=str(file))
    assert [cell["id"] for cell in plan_as_data(plan(read))] == [cell["id"] for cell in plan_as_data(plan(flags))]
    assert {run.spec.seed for run in plan(sweep_request(spec_file=str(file), seeds="1")).runs} == {0}
    assert sweep_request(spec_file=str(file), steps="50000").settings["steps"] == 50_000


def test_one_method_has_one_label_and_one_id_however_it_is_typed() -> None:
    def plan_of(algo: str) -> list[tuple[str, str]]:
        return [(run.label, run.run_id) for run in plan(sweep_request(env="Hopper", algo=algo, seeds="1")).runs]

    assert plan_of("ppo_clip[clip=0.2]") == plan_of("ppo_clip")
    assert plan_of("ppo_clip[clip=2e-1,anchor=behaviour]") == plan_of("ppo_clip")
    assert plan_of("vaco[delta=1]") == plan_of("vaco[delta=1.0]")
    with pytest.raises(UserError, match="ppo_clip more than once"):
        plan_of("ppo_clip,ppo_clip[clip=0.2]")


def test_every_run_of_a_plan_has_its_own_id() -> None:
    runs = plan(sweep_request(env="Hopper,Ant", k="1,4", seeds="2")).runs
    assert len({run.run_id for run in runs}) == len(runs)


def test_a_grid_beyond_reason_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=f"more than {MAX_RUNS:,}"):
        plan(SweepRequest(env=("Hopper",), seeds=10**12))


def test_one_large_seed_is_one_run() -> None:
    (run,) = plan(sweep_request(env="Hopper", algo="spo"), [10**15]).runs
    assert run.spec.seed == 10**15


def test_brackets_may_hold_settings_of_the_run() -> None:
    runs = plan(sweep_request(env="Hopper", algo="ppo_clip,ppo_clip[learning_rate=1e-4,clip=0.1]", seeds="1")).runs
    assert [run.label for run in runs] == ["ppo_clip", "ppo_clip[clip=0.1,learning_rate=0.0001]"]
    assert [run.spec.learning_rate for run in runs] == [3e-4, 1e-4]
    (same,) = plan(sweep_request(env="Hopper", algo="ppo_clip[learning_rate=3e-4]", seeds="1")).runs
    assert (same.label, same.run_id) == (runs[0].label, runs[0].run_id)
    with pytest.raises(UserError, match="ALGO names ppo_clip more than once"):
        plan(sweep_request(env="Hopper", algo="ppo_clip,ppo_clip[learning_rate=3e-4]", seeds="1"))
    with pytest.raises(UserError, match=r"names ppo_clip more than once, also as ppo_clip\[keep=best\]"):
        plan(sweep_request(env="Hopper", algo="ppo_clip,ppo_clip[keep=best]", seeds="1"))
    with pytest.raises(UserError, match="learning_rat"):
        plan(sweep_request(env="Hopper", algo="ppo_clip[learning_rat=3e-4]", seeds="1"))


def test_synchronous_and_stale_runs_share_a_sweep() -> None:
    asked = sweep_request(env="Hopper", algo="ppo_clip,ppo_clip[lag=fixed:0]", k="4", lag="fixed:3", seeds="1")
    runs = plan(asked).runs
    assert [(run.label, run.spec.lag) for run in runs] == [
        ("ppo_clip", "fixed:3"),
        ("ppo_clip[lag=fixed:0]", "fixed:0"),
    ]
    with pytest.raises(UserError, match="K=5"):
        plan(sweep_request(env="Hopper", algo="ppo_clip[lag=fixed:4]", k="4", seeds="1"))


@pytest.mark.parametrize("other", [{"mechanism": "replay"}, {"density": "mixture"}])
def test_episode_versions_exclude_replay_and_mixture_density(other: dict) -> None:
    dataclasses.replace(SPEC, assignment="episode")
    dataclasses.replace(SPEC, **other)
    with pytest.raises(UserError, match=r"use .*assignment=phase"):
        dataclasses.replace(SPEC, assignment="episode", **other)


def test_replay_excludes_mixture_density() -> None:
    with pytest.raises(UserError, match=r"density=mixture .* with mechanism=replay .* use density=component"):
        dataclasses.replace(SPEC, mechanism="replay", density="mixture")


class Shrunk(ControlSpec):
    """A spec from which a field was removed."""

    retired: ClassVar[Mapping[str, Any]] = {"cache": "recompute"}


def test_a_removed_field_stays_in_the_id_as_its_constant() -> None:
    @dataclasses.dataclass(frozen=True)
    class Full(ControlSpec):
        cache: str = "recompute"

    written = Full.from_dict(SPEC.to_dict())
    assert Shrunk.from_dict(written.to_dict()).run_id("a", "b") == written.run_id("a", "b") != SPEC.run_id("a", "b")
    assert Shrunk.before()["cache"] == "recompute", "newer records say what the field was"
    with pytest.raises(UserError, match=r"cache='keep' is no longer supported; cache is always 'recompute'"):
        Shrunk.from_dict({**written.to_dict(), "cache": "keep"})
