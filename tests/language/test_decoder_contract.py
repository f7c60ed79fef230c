"""Contract of decoders: built-in ones and the template keep it, and each promise, once broken, is one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli
from language_fixtures import one_thread as one_thread

from staleharness.algorithm import ALGORITHMS
from staleharness.base.plugin_files import PATH_VARIABLE
from staleharness.errors import UserError
from staleharness.language.decoder_interface import BUILT_IN, DECODERS, Decoded, Decoder, Request
from staleharness.language.in_process_decoders import TransformersDecoder, make_decoder
from staleharness.mismatch import read_mismatch
from staleharness.testing import DecoderCheck, check_decoder, parametrize_with_checks
from staleharness.testing.decoder_checks import example_policy
from staleharness.training.policy_buffer import PolicyBuffer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_decoders_keep_the_contract(name: str) -> None:
    make_decoder(name, example_policy()[0])  # registers them
    check_decoder(DECODERS[name])


@parametrize_with_checks([TransformersDecoder])
def test_each_check_may_be_a_test_of_its_own(decoder: type[Decoder], check: DecoderCheck) -> None:
    check(decoder)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private copy of the registry, so that broken decoders are seen by nobody else."""
    list(DECODERS)
    monkeypatch.setattr(DECODERS, "_classes", dict(DECODERS._classes))


def test_a_new_decoder_keeps_the_contract(
    registry: None, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = cli("new", "decoder", "my_engine", "--folder", str(tmp_path))
    assert code == 0 and "--set decoder=my_engine" in out
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    check_decoder(DECODERS["my_engine"])


def asking(**changes: Callable[[Request], Any]) -> dict[str, Any]:
    """A decoder that completes another request, and says that its versions are those requested."""

    def decode(self: Any, request: Request, buffer: PolicyBuffer) -> Decoded:
        other = replace(request, **{field: change(request) for field, change in changes.items()})
        decoded = TransformersDecoder.decode(self, other, buffer)
        return replace(decoded, version=request.version(decoded.token.shape[1]))

    return {"decode": decode}


def answering(**changes: Callable[[Decoded], Any]) -> dict[str, Any]:
    """A decoder that changes the completions."""

    def decode(self: Any, request: Request, buffer: PolicyBuffer) -> Decoded:
        right = TransformersDecoder.decode(self, request, buffer)
        return replace(right, **{field: change(right) for field, change in changes.items()})

    return {"decode": decode}


def sampling(text: str) -> dict[str, Any]:
    return asking(sampling=lambda r: read_mismatch(f"sampling[{text}]"))


def next_noise(request: Request) -> torch.Tensor | None:
    calls.append(0)
    return None if request.uniform is None else (request.uniform + 0.1 * len(calls)) % 1.0


calls: list[int] = []


def write_behind_autograd(self: Any, request: Request, buffer: PolicyBuffer) -> Decoded:
    right = TransformersDecoder.decode(self, request, buffer)
    next(iter(self.policy.parameters.values())).data.mul_(1.0)
    buffer[0].tensors["model.norm.weight"].data[0] += 0.5
    return right


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no docstring": ({"__doc__": None}, "write a docstring"),
    "no logp": (answering(logp=lambda d: None), "`logp` is None, but reports_logp is True"),
    "a wrong shape": (answering(ended=lambda d: d.ended[:-1]), "ended of shape"),
    "stops are ignored": (asking(stops=lambda r: ()), "goes on after its end"),
    "a short limit": (
        answering(mask=lambda d: d.mask * (torch.arange(d.mask.shape[1]) < 3)),
        "stops before the limit of 8",
    ),
    "ended is inverted": (answering(ended=lambda d: ~d.ended), "`ended` is"),
    "sampling without noise": (
        asking(uniform=lambda r: torch.full((len(r.prompt), r.length), 0.99) if r.uniform is None else r.uniform),
        "is sampled that is not the likeliest",
    ),
    "greedy": (asking(uniform=lambda r: None), "times, expected"),
    "hotter": (sampling("temperature=1.3"), "(nats|times), expected"),
    "colder": (sampling("temperature=0.8"), "(nats|times), expected"),
    "top-p": (sampling("top_p=0.9"), "(nats|times), expected"),
    "the newest version": (asking(versions=lambda r: np.full_like(r.versions, 2)), "is not the likeliest"),
    "the first version of each row": (
        asking(versions=lambda r: np.repeat(r.versions[:, :1], r.versions.shape[1], 1)),
        "(nats|times), expected",
    ),
    "another temperature's logp": (
        answering(logp=lambda d: None if d.logp is None else 1.2 * d.logp),
        "nats away from the trainer's",
    ),
    "a global generator": (
        asking(uniform=lambda r: None if r.uniform is None else torch.rand(r.uniform.shape)),
        "a global random generator moves",
    ),
    "state between calls": (asking(uniform=next_noise), "differs when asked for again"),
    "noise of another row": (
        asking(uniform=lambda r: None if r.uniform is None else r.uniform.roll(1, 0)),
        "in one batch and",
    ),
    "a write into a version": ({"decode": write_behind_autograd}, "version 0 has another model.norm.weight"),
    "models that are ignored": (asking(sampling=lambda r: ()), "not among the two likeliest"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_promise_is_one_line(case: str, registry: None) -> None:
    attributes, words = BROKEN[case]
    example_policy.cache_clear()
    cls = type("Broken", (TransformersDecoder,), {"__doc__": "A broken decoder.", **attributes})
    DECODERS.register("broken")(cls)
    with pytest.raises(AssertionError) as caught:
        check_decoder(cls)
    line = str(caught.value)
    assert "\n" not in line and line.startswith("broken: ") and re.search(words, line), line
    example_policy.cache_clear()


def test_an_unregistered_decoder_fails(registry: None) -> None:
    with pytest.raises(AssertionError, match=r"register it with @DECODERS\.register"):
        check_decoder(type("Unknown", (TransformersDecoder,), {"__doc__": "Unknown.", "name": "unknown"}))


def test_decoders_and_methods_are_checked_apart() -> None:
    with pytest.raises(UserError, match="of one kind at a time"):
        parametrize_with_checks([TransformersDecoder, ALGORITHMS["ppo_clip"]])
