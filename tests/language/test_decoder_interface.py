"""Another engine can stand in: a plain decoder from a plugin file gives the same completions and the same run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decoder_requests import LENGTH, noise, request, versions_of
from language_fixtures import Policies, Specs

from staleharness.base.plugin_code_hash import meaning_hash
from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.errors import UserError
from staleharness.language import task
from staleharness.language.answer_grading import Grade
from staleharness.language.decoder_interface import DECODERS, Decoded, Decoder, Request, check_decoder_name
from staleharness.language.in_process_decoders import TransformersDecoder, make_decoder
from staleharness.running.plan import PlannedRun, plan
from staleharness.study import sweep_request
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer
from staleharness.training.sampler_copies import SamplerCopies, block_copier

OURS = ("transformers", "shared_prompts", "packed_weights", "native")
PLAIN = Path(__file__).with_name("plain_decoder.py")


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(PLAIN))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
@pytest.mark.long
def test_a_plain_decoder_gives_the_same_completions(policy: Policies, kind: str, greedy: bool, name: str) -> None:
    actor = policy(versions=kind)
    buffer, uniform = versions_of(actor, 3), None if greedy else noise()
    versions = np.array([[0, 1, 2, 2]] * 4 + [[1, 2, 2, 2]] * 3 + [[0, 2, 1, 0]])
    free = make_decoder("plain", actor).complete(request(actor, versions, uniform=uniform, segment_length=3), buffer)
    row = int(free.mask.sum(1).argmax())
    stop = actor.tokenizer.decode(free.token[row, 2:4].tolist())
    asked = request(actor, versions, uniform=uniform, segment_length=3, stops=(stop,))
    wanted, found = (make_decoder(by, actor).complete(asked, buffer) for by in ("plain", name))
    assert not torch.equal(wanted.ended, free.ended) or wanted.mask.sum() < free.mask.sum()  # it did stop
    for field in ("token", "mask", "ended", "version"):
        assert torch.equal(getattr(found, field), getattr(wanted, field)), field
    assert torch.allclose(found.logp, wanted.logp, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{"lag": "uniform"}, {"lag": "inflight:3"}, {"dynamic_sampling": True}],
    ids=["uniform", "inflight", "dynamic"],
)
@pytest.mark.long
def test_a_run_with_it_is_the_same_run(spec: Specs, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def even(text: str, *_: str) -> Grade:  # a model of random weights solves nothing
        return Grade(len(text) % 2 == 0, len(text) > 0)

    monkeypatch.setattr(task, "grade", even)
    runs = [simulation_of(spec(capacity=3, decoder=name, **settings)) for name in (*OURS, "plain")]
    first, *others = ([comparable(record.metrics) for record in run] for run in runs)
    assert all(other == first for other in others)  # log-probabilities are teacher-forced, whoever sampled
    assert 0.0 < first[-1]["reward"] < 1.0
    weights = (run.policy.parameters.values() for run in runs)
    assert all(torch.equal(a, b) for a, *rest in zip(*weights, strict=True) for b in rest)


def comparable(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics without the distances between the decoder's own log-probabilities and the trainer's."""
    kept = {key: x for key, x in metrics.items() if not key.startswith("mismatch/") or key == "mismatch/surprisal_gap"}
    assert 0.0 <= metrics["mismatch/kl_k3"] < 1e-9 and metrics["mismatch/max"] == pytest.approx(1.0, abs=1e-4)
    return kept


def spoilt(**changes: Callable[[Decoded], Any]) -> type[Decoder]:
    class Spoilt(TransformersDecoder):
        name = "spoilt"

        def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
            right = super().decode(request, buffer)
            return replace(right, **{field: change(right) for field, change in changes.items()})

    return Spoilt


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": lambda d: d.token[:, 1:]}, r"token of shape \[8, 9\], where mask and prompts require \[8, 10\]"),
        ({"ended": lambda d: d.ended[:3]}, r"ended of shape \[3\], where mask and prompts require \[8\]"),
        ({"mask": lambda d: d.mask[:1]}, r"mask of shape \[1, 10\], where mask and prompts require \[8, 10\]"),
        ({"logp": lambda d: d.logp[..., None]}, r"logp of shape \[8, 10, 1\]"),
        ({"logp": lambda d: d.logp.double()}, "logp in float64 instead of float32"),
        ({"ended": lambda d: d.ended.float()}, "ended in float32 instead of bool"),
        (
            {"logp": lambda d: d.logp / 0.0},
            "log-probabilities that are not finite; where its engine reports none, return",
        ),
        ({"mask": lambda d: 1.0 - d.mask}, "a mask with tokens after padding"),
        ({"mask": lambda d: d.mask[0]}, r"mask of shape \[10\] instead of \[B, T\]"),
        ({"mask": lambda d: d.mask.sum()}, r"mask of shape \[\] instead of \[B, T\]"),
        ({"mask": lambda d: d.mask / 2.0}, "a mask with 0.5, where 0 and 1 are possible"),
        ({"mask": lambda d: d.mask / 0.0}, "a mask with (nan|inf), where 0 and 1 are possible"),
        ({"mask": lambda d: d.mask * d.ended[:, None].float()}, "a completion without a token"),
        ({"token": lambda d: d.token - 1000}, r"token -\d+, where 0 to \d+ are possible"),
        ({"token": lambda d: d.token + 1000}, r"token 1\d+, where 0 to \d+ are possible"),
        ({"token": lambda d: d.token.tolist()}, "token of type list instead of a tensor"),
        ({"logp": lambda d: d.logp.numpy()}, "logp of type ndarray instead of a tensor"),
        ({"mask": lambda d: None}, "mask of type NoneType instead of a tensor"),
        ({"experts": lambda d: d.token.tolist()}, "experts of type list instead of a tensor"),
        ({"token": lambda d: d.token.to("meta")}, "token on meta, where the prompts are on cpu"),
        ({"logp": lambda d: -d.logp}, "the log-probability [0-9.]+, where 0 is the highest possible"),
        ({"version": lambda d: d.version + 7}, "a token of version 7, which was not requested for it"),
        (
            {n: lambda d, n=n: getattr(d, n).repeat(1, 2) for n in "token mask logp version".split()},
            "completions of up to 20 tokens, where 1 to 10 were requested",
        ),
    ],
)
def test_an_answer_of_another_shape_is_refused_in_one_line(
    policy: Policies, changes: dict[str, Callable[[Decoded], Any]], words: str
) -> None:
    actor = policy()
    asked = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise())
    buffer = versions_of(actor, 1)
    assert spoilt()(actor).complete(asked, buffer).token.shape == (8, LENGTH)
    with pytest.raises(UserError, match=f"^the decoder spoilt returned {words}") as caught:
        spoilt(**changes)(actor).complete(asked, buffer)
    assert "\n" not in str(caught.value)


def test_an_answer_that_is_not_decoded_is_refused_in_one_line(policy: Policies) -> None:
    actor = policy()
    asked = request(actor, np.zeros((8, 1), dtype=np.int64))
    decoder = make_decoder("transformers", actor)
    for wrong in (None, (asked.prompt, asked.prompt_mask)):
        decoder.decode = lambda *_, answer=wrong: answer  # type: ignore[method-assign]
        with pytest.raises(UserError, match=f"an object of type {type(wrong).__name__} instead of Decoded$"):
            decoder.complete(asked, versions_of(actor, 1))


def test_a_version_that_another_token_had_is_refused(policy: Policies) -> None:
    actor, versions = policy(), np.array([[0, 1, 2, 2]] * 8)
    asked, buffer = request(actor, versions, uniform=noise(), segment_length=3), versions_of(actor, 3)
    assert spoilt()(actor).complete(asked, buffer).version[0, :4].tolist() == [0, 0, 0, 1]
    with pytest.raises(UserError, match="a token of version 2, which was not requested for it"):
        spoilt(version=lambda d: d.version.clamp(min=2))(actor).complete(asked, buffer)

    class Rewriting(TransformersDecoder):
        def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
            request.versions[:] = 0
            return super().decode(request, buffer)

    with pytest.raises(UserError, match="a token of version 0, which was not requested for it"):
        Rewriting(actor).complete(asked, buffer)


def test_padding_may_hold_anything_and_is_filled(policy: Policies) -> None:
    actor = policy()
    asked, buffer = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise()), versions_of(actor, 1)
    expected = spoilt()(actor).complete(asked, buffer)
    padding = expected.mask == 0
    assert padding.any() and not expected.logp[padding].any()
    other = spoilt(
        token=lambda d: d.token.masked_fill(padding, -100),
        logp=lambda d: d.logp.masked_fill(padding, float("nan")),
        version=lambda d: d.version.masked_fill(padding, 7),
    )(actor).complete(asked, buffer)
    for name in ("token", "mask", "ended", "logp", "version"):
        assert torch.equal(getattr(other, name), getattr(expected, name)), name


def test_completions_are_cut_to_the_longest(policy: Policies) -> None:
    actor = policy()
    asked, buffer = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise()), versions_of(actor, 1)
    first = asked.prompt.new_ones((8, LENGTH)).cumsum(1) <= 4
    cut = spoilt(mask=lambda d: d.mask * first)(actor).complete(asked, buffer)
    assert {getattr(cut, name).shape for name in ("token", "mask", "logp", "version")} == {(8, 4)}


@pytest.mark.parametrize("mismatched", [False, True])
@pytest.mark.parametrize("place", ["the policy's weights", "the request", "a version of the buffer"])
def test_a_decoder_that_writes_into_what_it_reads_is_refused(policy: Policies, place: str, mismatched: bool) -> None:
    class Writing(TransformersDecoder):
        name = "writing"

        def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
            tensors = {
                "the policy's weights": next(iter(self.policy.parameters.values())),
                "the request": request.prompt,
                "a version of the buffer": next(iter(buffer[0].tensors.values())),
            }
            tensors[place].mul_(2)
            return super().decode(request, buffer)

    actor = policy()
    asked, buffer = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise()), versions_of(actor, 1)
    if mismatched:
        buffer = SamplerCopies(block_copier((), 0), 1, 0).view(buffer)
        make_decoder("transformers", actor).complete(asked, buffer)  # makes the copy
    with pytest.raises(UserError, match=f"^the decoder writing writes into {place}; write into a copy$"):
        Writing(actor).complete(asked, buffer)


def plan_run(algo: str = "ppo_clip", **asked: str) -> PlannedRun:
    (run,) = plan(sweep_request(env="word-problems", algo=algo, seeds="1", **asked)).runs
    return run


def test_run_ids_hold_the_decoder_and_a_third_partys_file() -> None:
    default, named, other = plan_run(), *(plan_run(settings=f"decoder={n}") for n in ("transformers", "plain"))
    assert default.run_id == named.run_id != other.run_id
    assert default.spec.to_dict()["decoder_digest"] == ""
    assert other.spec.to_dict()["decoder_digest"] == meaning_hash(PLAIN.read_bytes())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("dtype=float32", "transformers"),
        ("dtype=bfloat16", "shared_prompts"),
        ("dtype=bfloat16,decoder=transformers", "transformers"),
        ("dtype=bfloat16,device=cuda", "transformers"),
        ("model={tiny}", "packed_weights"),
        ("model={tiny},dtype=bfloat16", "shared_prompts"),
        ("model={tiny},decoder=transformers", "transformers"),
        ("model={tiny},device=cuda", "transformers"),
        ("learner=native", "native"),
        ("model={tiny},learner=native", "native"),
        ("model={tiny},learner=native,decoder=packed_weights", "packed_weights"),
    ],
)
def test_the_default_decoder_is_the_fastest_on_a_cpu(settings: str, expected: str, tiny: Path) -> None:
    run = plan_run(settings=settings.format(tiny=tiny))
    assert run.spec.to_dict()["decoder"] == expected
    of_method = plan_run(algo=f"ppo_clip[{settings.format(tiny=tiny)}]")
    assert of_method.run_id == run.run_id, "an option of a method means what SET= means"


def test_a_method_in_torch_beside_native_ones_keeps_its_decoder() -> None:
    mixed = plan_run(algo="ppo_clip[learner=torch]", settings="learner=native")
    assert mixed.run_id == plan_run().run_id


def test_decoders_are_found_in_plugin_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("mine/decoders", "theirs/algorithms"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder).with_name("setup.py").write_text("raise SystemExit('this is no plugin')")
    (tmp_path / "theirs/algorithms/idea.py").write_text("raise SystemExit('this is no decoder')")
    (tmp_path / "mine/decoders/short.py").write_text(PLAIN.read_text().replace('"plain"', '"short"'))
    monkeypatch.setenv(PATH_VARIABLE, os.pathsep.join(str(tmp_path / name) for name in ("mine", "theirs")))
    assert DECODERS["short"].name == "short"


def test_a_name_that_no_decoder_has_is_refused_with_the_nearest(policy: Policies) -> None:
    with pytest.raises(UserError, match=r"no decoder is called 'plane'; did you mean 'plain'\?"):
        make_decoder("plane", policy())
    with pytest.raises(UserError, match=r"did you mean 'transformers'\?"):
        plan_run(settings="decoder=transfomers")


OTHER_DECODERS = {
    "no_class": (
        "func",
        "def func(policy): return None",
        r"the name 'func' in decoders is given to a function, not to",
    ),
    "no_decoder": ("mine", "class Mine: pass", r"own\.py: Mine does not extend Decoder; write class Mine\(Decoder\)$"),
}


@pytest.mark.parametrize("case", OTHER_DECODERS)
def test_what_cannot_be_a_decoder_is_refused_at_planning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    name, code, words = OTHER_DECODERS[case]
    imports = "from staleharness.language.decoder_interface import DECODERS, Decoder"
    (tmp_path / "own.py").write_text(f"{imports}\n\n\n@DECODERS.register({name!r})\n{code}\n")
    monkeypatch.setattr(DECODERS, "_classes", dict(DECODERS._classes))
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "own.py"))
    with pytest.raises(UserError, match=words):
        plan_run(settings=f"decoder={name}")


def test_a_plugin_with_a_built_in_name_is_refused_before_any_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(PLAIN.read_text().replace('"plain"', '"native"'))
    monkeypatch.setattr(DECODERS, "_classes", {})  # the built-in decoders have not been imported
    monkeypatch.setattr(DECODERS, "_loaded_files", {})
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "own.py"))
    with pytest.raises(UserError, match=r"own\.py: PlainDecoder takes the name of the built-in decoder native; rename"):
        check_decoder_name("transformers")
