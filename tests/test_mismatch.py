"""Mismatch models by independent computations, their notation, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from needs import needs_extra
from torch import Tensor

from staleharness.control.collector import temperature_of
from staleharness.errors import UserError
from staleharness.mismatch import MISMATCHES, Mismatch, Place, mismatch_identity, mismatch_text, option, read_mismatch
from staleharness.running.plan import Plan, plan
from staleharness.study import sweep_request
from staleharness.training.policy_buffer import PolicyBuffer, Version
from staleharness.training.sampler_copies import SamplerCopies, apply, block_copier

PLACE = Place("model.layers.0.mlp.up_proj.weight", 3, 7)


def matrix(rows: int = 6, columns: int = 70) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


def copy_of(text: str, weight: Tensor, place: Place = PLACE) -> Tensor:
    (model,) = read_mismatch(text)
    return model.matrix(weight, place)


@pytest.mark.parametrize(("text", "steps", "group"), [("int8", 127, 70), ("int4", 7, 32)])
def test_integers_are_the_nearest_multiples_of_their_scale(text: str, steps: int, group: int) -> None:
    weight = matrix()
    found, wanted = copy_of(text, weight).double().numpy(), np.zeros((6, 70))
    for i, row in enumerate(weight.double().numpy()):
        for first in range(0, 70, group):
            part = row[first : first + group]
            scale = max(abs(x) for x in part) / steps
            grid = scale * np.arange(-steps, steps + 1)
            wanted[i, first : first + group] = [grid[abs(grid - x).argmin()] for x in part]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert abs(found - weight.numpy()).max() > 1e-3


def test_fp8_has_three_bits_of_mantissa_and_a_scale_per_row() -> None:
    """e4m3fn has a step of 2^(e−3) in [2^e, 2^(e+1)), of 2^−9 below 2^−6, and 448 as its largest number."""
    weight = matrix()
    scaled = (weight / (weight.abs().amax(1, keepdim=True) / 448)).double().numpy()
    step = 2.0 ** (np.maximum(np.floor(np.log2(abs(scaled))), -6) - 3)
    wanted = np.round(scaled / step) * step * (weight.abs().amax(1, keepdim=True) / 448).double().numpy()
    np.testing.assert_allclose(copy_of("fp8", weight).double().numpy(), wanted, rtol=1e-5)
    assert 0.01 < (copy_of("fp8", weight) / weight - 1).abs().mean() < 0.04


def test_bf16_of_a_bf16_matrix_is_the_matrix() -> None:
    weight = matrix()
    short = weight.bfloat16().float()
    assert torch.equal(copy_of("bf16_weights", short), short)
    assert not torch.equal(copy_of("bf16_weights", weight), weight)


def test_noise_is_of_its_size_and_keyed_by_version_and_matrix() -> None:
    weight = matrix(200, 200)
    found = copy_of("noise:0.3", weight) - weight
    assert float(found.std()) == pytest.approx(0.3 * float(weight.square().mean().sqrt()), rel=0.02)
    assert torch.equal(copy_of("noise:0", weight), weight)
    assert torch.equal(copy_of("noise:0.3", weight) - weight, found)
    for other in (Place(PLACE.name, 4, 7), Place("model.layers.1.mlp.up_proj.weight", 3, 7), Place(PLACE.name, 3, 8)):
        assert not torch.equal(copy_of("noise:0.3", weight, other) - weight, found)
    one, two = (copy_of("noise[sigma=0.3,fixed=true]", weight, Place(PLACE.name, v, 7)) for v in (3, 4))
    assert torch.equal(one, two) and not torch.equal(one - weight, found)


def test_a_bug_is_in_every_matrix_of_its_share_of_versions() -> None:
    """Versions are drawn once, for all matrices; in those the noise is that of `noise`, of the same size."""
    weight, names = matrix(), (PLACE.name, "model.layers.1.mlp.up_proj.weight")
    changed = [
        {torch.equal(copy_of("buggy_actor[share=0.3,sigma=0.5]", weight, Place(name, v, 7)), weight) for name in names}
        for v in range(500)
    ]
    assert all(len(each) == 1 for each in changed)
    share = sum(each == {False} for each in changed) / 500
    assert abs(share - 0.3) < 3 * math.sqrt(0.3 * 0.7 / 500)
    assert torch.equal(copy_of("buggy_actor[share=1.0,sigma=0.5]", weight), copy_of("noise:0.5", weight))
    assert torch.equal(copy_of("buggy_actor[share=0.0]", weight), weight)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("sampling[top_p=0.5]", [0]),
        ("sampling[top_p=0.51]", [0, 1]),
        ("sampling[top_p=0.8]", [0, 1]),
        ("sampling[top_p=0.96]", [0, 1, 2, 3]),
        ("sampling[top_k=3]", [0, 1, 2]),
        ("sampling[top_k=3,top_p=0.86]", [0, 1, 2]),
        ("sampling[top_k=2,top_p=0.6]", [0]),
    ],
)
def test_truncation_keeps_the_likeliest_tokens(text: str, kept: list[int]) -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    order = torch.tensor([2, 0, 3, 1])
    (model,) = read_mismatch(text)
    found = model.logits(p[order].log()[None]).softmax(-1)[0]
    wanted = torch.tensor([p[i] if i in kept else 0.0 for i in order.tolist()])
    torch.testing.assert_close(found, wanted / wanted.sum())


def test_a_temperature_divides_the_logits() -> None:
    (model,) = read_mismatch("sampling:0.5")
    logits = torch.tensor([[1.0, -2.0]])
    assert torch.equal(model.logits(logits), 2 * logits)


def test_copies_change_matrices_inside_blocks_and_are_made_once() -> None:
    tensors = {
        "model.embed_tokens.weight": matrix(),
        "model.layers.0.mlp.up_proj.weight": matrix(),
        "model.layers.0.input_layernorm.weight": matrix()[0],
        "model.layers.0.self_attn.q_proj.bias": matrix()[1],
        "model.layers.0.mlp.gate.weight": matrix(),  # a router, as the next two
        "model.layers.0.mlp.router.weight": matrix(),
        "model.layers.0.mlp.router.layer.weight": matrix(),
        "model.layers.0.mlp.experts.gate_up_proj_bias": matrix(),  # [experts, out]
        "lm_head.weight": matrix(),
    }
    buffer = PolicyBuffer(2)
    copies = SamplerCopies(block_copier(read_mismatch("int4"), 0), 2, seed=0)
    view = copies.view(buffer)
    for phase in range(3):
        buffer.push(Version(phase, 5 * phase, tensors))
    first = view[1]
    changed = [name for name in tensors if not torch.equal(first.tensors[name], tensors[name])]
    assert changed == ["model.layers.0.mlp.up_proj.weight"]
    assert (first.phase, first.gradient_step) == (1, 5) and buffer[1].tensors is tensors
    assert view[1] is first and view.newest is view[2] and 0 not in view and 1 in view and 3 not in view
    buffer.push(Version(3, 15, tensors))
    assert view[3] is not view[2]
    assert set(copies._copies) == {2, 3}


class Means(Mismatch):
    """Returns something else than a matrix of the same shape, and a temperature that is none."""

    name = "means"
    answer: ClassVar[Any] = None
    temperature: ClassVar[Any] = "0.5"  # type: ignore[misc, assignment]

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return self.answer  # type: ignore[no-any-return]

    def logits(self, logits: Tensor) -> Tensor:
        return self.answer  # type: ignore[no-any-return]


ANSWERS = pytest.mark.parametrize(
    ("answer", "words"),
    [
        (torch.ones(6, 1), r"a tensor \[6, 1\], not \[6, 70\]"),
        (torch.ones(()), r"a tensor \[\], not \[6, 70\]"),
        (None, r"a NoneType, not a tensor \[6, 70\]"),
        (np.ones((6, 70), np.float32), r"a ndarray, not a tensor \[6, 70\]"),
        (torch.ones(6, 70, dtype=torch.float64), "float64, not float32"),
    ],
)


@ANSWERS
def test_an_answer_of_another_kind_is_refused(answer: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row or a number would be spread over the matrix of an actor."""
    monkeypatch.setattr(Means, "answer", answer)
    with pytest.raises(UserError, match=rf"^MISMATCH=means: matrix returns {words}, for {PLACE.name}$"):
        apply([Means()], matrix(), PLACE)


@needs_extra("llm")
@ANSWERS
def test_logits_of_another_kind_are_refused(answer: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from staleharness.language.batched_generation import DecodingBatch

    monkeypatch.setattr(Means, "answer", answer)
    batch = object.__new__(DecodingBatch)
    batch.sampling = (Means(),)
    with pytest.raises(UserError, match=f"^MISMATCH=means: logits returns {words}, for tokens$"):
        batch.sample_shaped(matrix(), None, lambda *_: (matrix(), matrix()))


@pytest.mark.parametrize("value", ["0.5", 0, float("nan"), None])
def test_a_temperature_is_a_number_above_0(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Means, "temperature", value)
    with pytest.raises(UserError, match=f"^MISMATCH=means: temperature is {value!r}; give a number above 0$"):
        temperature_of([Means()])


def test_a_model_that_changes_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="mine defines neither matrix"):
        type("Mistyped", (Mismatch,), {"matrices": lambda *_: None}).check_class("mine")
    Means.check_class("mine")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("none", "none"),
        ("noise", "noise"),
        ("noise[sigma=0.2,fixed=false]", "noise"),
        ("noise[sigma=0.4]", "noise:0.4"),
        ("fp8+sampling[top_p=0.95]", "fp8+sampling[top_p=0.95]"),
        ("noise[fixed=true]+int8", "noise[fixed=true]+int8"),
        ("noise:1e+2+fp8", "noise:100.0+fp8"),
        ("sampling[temperature=1e16]+fp8", "sampling:1e+16+fp8"),
    ],
)
def test_one_model_has_one_text(text: str, canonical: str) -> None:
    assert mismatch_text(read_mismatch(text)) == canonical
    assert mismatch_text(read_mismatch(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fp9", "not a mismatch model.*fp8"),
        ("none+fp8", "'none' is not a mismatch model; give none alone"),
        ("fp8+fp8", "names fp8 twice; name each model once"),
        ("noise:0.1+fp8+noise:0.2", "names noise twice"),
        ("noise[sigma=-1]", "sigma must be 0 or above"),
        ("noise[sgima=1]", "sgima.*sigma"),
        ("sampling[top_p=0]", "top_p must be above 0 and at most 1"),
        ("sampling[logprobs=rough]", "rough is not one of processed, raw"),
        ("", "not a mismatch model"),
    ],
)
def test_a_mistyped_model_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        read_mismatch(text)
    assert "\n" not in str(caught.value)


def plan_of(env: str = "word-problems", algo: str = "ppo_clip", **given: str) -> Plan:
    return plan(sweep_request(env=env, algo=algo, seeds="1", **given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"env": "bit-chain", "mismatch": "fp8"},
            "MISMATCH=fp8.*bit-chain.*only control and language tasks have a separate sampler",
        ),
        (
            {"env": "Hopper", "mismatch": "sampling[top_p=0.9]"},
            "Hopper-v5 support no change of logits but a temperature; give sampling",
        ),
        ({"env": "Hopper", "mismatch": "fp8", "settings": "density=mixture"}, "MISMATCH=fp8.*give density=component"),
        pytest.param(
            {"mismatch": "int4", "settings": "versions=lora"},
            "int4 copies whole matrices.*versions=full",
            marks=needs_extra("llm"),
        ),
        ({"mismatch": "sampling[top_p=0.9,logprobs=raw]"}, "logprobs=processed, or SET=behaviour=version"),
        ({"mismatch": "fp8,fp8"}, "MISMATCH names fp8 more than once"),
        ({"mismatch": "fp8,int8", "algo": "ppo_clip[mismatch=int4]"}, "MISMATCH names several models"),
        ({"mismatch": " "}, "MISMATCH=' ' names nothing"),
        ({"settings": "mismatch=fp8"}, "unknown option 'mismatch'"),
    ],
)
def test_what_cannot_be_is_refused_when_planned(given: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        plan_of(**given)
    assert "\n" not in str(caught.value)


@needs_extra("llm")
def test_a_mismatch_is_part_of_an_id_only_where_there_is_one() -> None:
    plain, none, noise, same = (
        plan_of(**({"mismatch": text} if text else {})).runs[0].run_id
        for text in ("", "none", "noise", "noise[sigma=0.2]")
    )
    assert plain == none != noise == same


@needs_extra("llm")
def test_an_axis_of_models_runs_each_with_every_method() -> None:
    found = plan_of(algo="ppo_clip,vaco[delta=0.1]", mismatch="none,fp8,noise[sigma=0.4]")
    labels = [run.label for run in found.runs]
    assert labels == [
        "ppo_clip",
        "vaco[delta=0.1]",
        "ppo_clip[mismatch=fp8]",
        "vaco[delta=0.1,mismatch=fp8]",
        "ppo_clip[mismatch=noise:0.4]",
        "vaco[delta=0.1,mismatch=noise:0.4]",
    ]
    assert [run.spec.mismatch for run in found.runs] == ["none"] * 2 + ["fp8"] * 2 + ["noise:0.4"] * 2
    question = sweep_request(env="word-problems", algo="ppo_clip,vaco[delta=0.1]", mismatch="none,fp8,noise:0.4")
    assert [label for label, _, _ in question.cells()] == labels
    (one,) = plan_of(algo="ppo_clip[mismatch=fp8]").runs
    assert one.run_id == found.runs[2].run_id
    (all_runs,) = plan_of(mismatch="fp8").runs
    assert all_runs.run_id == one.run_id and all_runs.label == "ppo_clip"


@needs_extra("llm")
def test_an_edit_of_a_model_expires_its_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from staleharness.running import run_identity

    before = [plan_of(mismatch=text).runs[0].run_id for text in ("none", "fp8")]
    monkeypatch.setattr(run_identity.mismatch, "source_hash", lambda cls, active: "edited")
    after = [plan_of(mismatch=text).runs[0].run_id for text in ("none", "fp8")]
    assert before[0] == after[0] and before[1] != after[1]


def test_every_model_has_a_summary_and_changes_something() -> None:
    assert set(MISMATCHES) == {"bf16_weights", "buggy_actor", "fp8", "int4", "int8", "noise", "sampling"}
    for name in MISMATCHES:
        cls = MISMATCHES[name]
        assert cls.changes_weights() or cls.changes_logits()
    assert math.isclose(read_mismatch("sampling:0.8")[0].temperature, 0.8)


@dataclass(frozen=True)
class Scale(Mismatch):
    """Multiplies by a number in a file."""

    table: str = option("", path=True)

    def matrix(self, weight: Tensor, place: Place) -> Tensor:
        return weight.clone()


def test_a_file_counts_by_content_not_by_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(MISMATCHES)
    monkeypatch.setattr(MISMATCHES, "_classes", {**MISMATCHES._classes, "scale": Scale})
    monkeypatch.setattr(Scale, "name", "scale")
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    texts = [f"scale[table={tmp_path}/{name}]" for name in "abc"]
    asked = {"env": "Hopper", "k": "2", "algo": "ppo_clip", "seeds": "1"}
    a, b, c = (plan(sweep_request(**asked, mismatch=f"fp8+{text}")).runs[0].run_id for text in texts)
    assert a == b != c
    assert mismatch_identity("fp8") == mismatch_identity("none") == ""
