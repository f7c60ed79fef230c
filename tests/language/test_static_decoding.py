"""Decoding as on a GPU, walked on the CPU: the same completions, few calls, no number read, one device."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from decoder_requests import LENGTH, noise, request, versions_of
from language_fixtures import Policies
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from staleharness.language import batched_generation, static_decoding
from staleharness.language.decoder_interface import Decoded, Request
from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.fused_forward import FusedForward, PaddedParts
from staleharness.language.static_decoding import StaticBatch, capture_step
from staleharness.language.version_groups import batches
from staleharness.training.policy_buffer import PolicyBuffer

MIXED = np.array([0, 2, 1, 1, 0, 2, 2, 2])[:, None]
IN_FLIGHT = np.array([[0, 1, 2, 2]] * 4 + [[1, 2, 2, 2]] * 3 + [[0, 2, 1, 0]])


def sample(policy: CausalLM, buffer: PolicyBuffer, versions: NDArray[np.int64], **asked: Any) -> Decoded:
    return make_decoder("transformers", policy).complete(request(policy, versions, **asked), buffer)


def in_place(policy: CausalLM, room: int = 0) -> CausalLM:
    """Make a policy decode as on a GPU, with `room` resident versions."""
    policy.decodes_in_place = True
    policy.keep_resident(room)
    return policy


def assert_same(found: Decoded, wanted: Decoded) -> None:
    for name in ("token", "mask", "ended", "version"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert torch.allclose(found.logp, wanted.logp, atol=1e-5)


@pytest.fixture(params=[2, 16], ids=["looking-often", "looking-late"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Tokens between looks; rows leave as soon as one has ended. With few, prompts are read in pieces, too."""
    for module in (batched_generation, static_decoding):
        monkeypatch.setattr(module, "CHECK_EVERY", request.param)
    monkeypatch.setattr(static_decoding, "COMPACT_SHARE", 0.99)
    monkeypatch.setattr(static_decoding, "COLUMNS", 4)
    if request.param == 2:
        monkeypatch.setattr(static_decoding, "READ_TOKENS", 20)  # prompts of a part are read in pieces
    return int(request.param)


@pytest.mark.parametrize("room", [0, 2, 5])
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
@pytest.mark.parametrize("max_rows", [0, 5], ids=["all", "five-rows"])
@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.long
def test_parallel_versions_complete_like_each_alone(
    policy: Policies, looks: int, room: int, greedy: bool, max_rows: int, kind: str
) -> None:
    plain = policy(versions=kind)
    buffer, uniform = versions_of(plain, 3), None if greedy else noise()
    actor = in_place(policy(versions=kind), room)
    actor.decode_batch = max_rows
    before = [p.detach().clone() for p in actor.parameters.values()]
    assert_same(sample(actor, buffer, MIXED, uniform=uniform), sample(plain, buffer, MIXED, uniform=uniform))
    assert all(torch.equal(p, kept) for p, kept in zip(actor.parameters.values(), before, strict=True))


@pytest.mark.parametrize("kv_cache", ["recompute", "keep"])
@pytest.mark.parametrize("room", [0, 2, 3])
def test_in_flight_updates_agree_with_the_growing_cache(policy: Policies, looks: int, kv_cache: str, room: int) -> None:
    plain, uniform = policy(kv_cache=kv_cache), 0.5 * noise()
    buffer, asked = versions_of(plain, 3), {"uniform": uniform, "segment_length": 3}
    actor = in_place(policy(kv_cache=kv_cache), room)
    assert_same(sample(actor, buffer, IN_FLIGHT, **asked), sample(plain, buffer, IN_FLIGHT, **asked))


def test_stops_are_found_across_two_checks(policy: Policies, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, versions = policy(), np.zeros((8, 1), dtype=np.int64)
    buffer, uniform = versions_of(plain, 1), noise()
    free = sample(plain, buffer, versions, uniform=uniform)
    row = int(free.mask.sum(1).argmax())
    for first in range(1, 6):  # a stop that lies on both sides of a look, at one place or another
        stop = plain.tokenizer.decode(free.token[row, first : first + 3].tolist())
        with monkeypatch.context() as context:
            for module in (batched_generation, static_decoding):
                context.setattr(module, "CHECK_EVERY", 16)
            wanted = sample(plain, buffer, versions, uniform=uniform, stops=(stop,))
        found = sample(in_place(policy()), buffer, versions, uniform=uniform, stops=(stop,))
        assert_same(found, wanted)
        assert int(found.mask[row].sum()) <= first + 3


def test_only_tails_are_decoded_for_stops(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole completions again and again cost their length squared."""
    actor, sizes = policy(), []
    monkeypatch.setattr(batched_generation, "CHECK_EVERY", 4)
    decode = actor.tokenizer.decode
    monkeypatch.setattr(actor.tokenizer, "decode", lambda ids: sizes.append(len(ids)) or decode(ids))
    sample(actor, versions_of(actor, 1), np.zeros((8, 1), dtype=np.int64), uniform=noise(), stops=("zz",))
    assert max(sizes) <= 4 + 1 + 2 < LENGTH


def test_batches_respect_parallel_versions_and_rows() -> None:
    groups = [np.arange(5), np.arange(5, 6), np.arange(6, 9)]
    versions = np.repeat([0, 1, 2], [5, 1, 3])[:, None]
    for together, max_rows, sizes in (
        (3, 0, [[5, 1, 3]]),
        (2, 0, [[5, 1], [3]]),
        (3, 6, [[2, 1, 2], [2, 1], [1]]),
        (3, 8, [[4, 1, 3], [1]]),  # rows there are, not places of padded parts
        (3, 2, [[1, 1], [1], [1], [1], [1], [2], [1]]),
        (1, 2, [[2], [2], [1], [1], [2], [1]]),
    ):
        found = list(batches(groups, versions, together, max_rows))
        assert [np.unique(versions[rows], return_counts=True)[1].tolist() for rows in found] == sizes
        assert sorted(np.concatenate(found).tolist()) == list(range(9))


def test_batches_count_the_versions_of_each_segment() -> None:
    """Four sequences of versions, of which two versions act at a time at most."""
    versions = np.array([[0, 1], [0, 2], [1, 1], [1, 2]])
    groups = list(np.arange(4)[:, None])
    assert [rows.tolist() for rows in batches(groups, versions, 2, 0)] == [[0, 1, 2, 3]]
    assert [rows.tolist() for rows in batches(groups, versions, 1, 0)] == [[0], [1], [2], [3]]
    assert [rows.tolist() for rows in batches(groups, versions, 2, 3)] == [[0, 1, 2], [3]]


def test_places_of_unequal_parts_hold_their_own_rows() -> None:
    device = torch.device("cpu")
    for position in ([0, 0, 1, 2, 2, 2], [1, 3, 1], [0], [1, 0, 1, 0]):
        parts, longest = PaddedParts.of(np.array(position), 5, device), max(map(position.count, position))
        assert parts is not None and len(parts.rows) == 5 * longest
        assert parts.rows[parts.places].tolist() == list(range(len(position)))
        assert (parts.places // longest).tolist() == position
        assert int(parts.rows.min()) >= 0 and int(parts.rows.max()) < len(position)
    assert PaddedParts.of(np.array([0, 0, 1, 1]), 2, device) is None
    assert PaddedParts.of(np.array([0, 1, 0, 1]), 2, device) is not None


class Calls(TorchDispatchMode):
    """Every operation, counted by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func.name().partition("::")[2].partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def count_calls(actor: CausalLM, buffer: PolicyBuffer, length: int, versions: NDArray[np.int64]) -> Counter[str]:
    """Operations of decoding `length` tokens, none of which ends a row."""
    actor.end = [-1]
    asked = request(actor, versions, uniform=noise())
    asked = type(asked)(asked.prompt, asked.prompt_mask, versions, length, noise().repeat(1, 10)[:, :length], length)
    with Calls() as calls:
        make_decoder("transformers", actor).complete(asked, buffer)
    return calls.count


VIEWS = set(  # launch nothing
    "view _unsafe_view transpose slice select split split_with_sizes unsqueeze expand t as_strided detach unbind alias "
    "permute _reshape_alias squeeze lift_fresh empty".split()
)


@pytest.mark.parametrize("room", [1, 3])
def test_calls_per_token_do_not_depend_on_the_versions(policy: Policies, room: int) -> None:
    """Between two lengths, so that what is done once does not count. The tiny model has two layers."""
    actor = in_place(policy(), room)
    buffer = versions_of(actor, room)
    versions = (np.arange(8) % room)[:, None]
    short, long = (count_calls(actor, buffer, length, versions) for length in (32, 64))
    each = {name: (long[name] - short[name]) / 32 for name in long if name not in VIEWS}
    assert each["_local_scalar_dense"] <= 1 / 16
    assert sum(each.values()) <= 130, each


class OneDevice(TorchDispatchMode):
    """Refuses tensors of several devices in one call, but single numbers, and that a number is read."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim > 0]
        devices = {x.device.type for x in given}
        assert len(devices) <= 1, f"{func} is given tensors on {devices}"
        assert "_local_scalar_dense" not in func.name(), "a number is read"
        return func(*args, **(kwargs or {}))


def test_a_step_touches_one_device_and_reads_no_number(policy: Policies) -> None:
    """On the device `meta`, which holds no numbers: three versions in bfloat16, sampled."""
    actor = policy(dtype="bfloat16")
    config, length, width, device = actor.model.config, 6, 4, torch.device("meta")
    actor.model, actor.device = actor.model.to(device), device
    one = FusedForward(actor.model, torch.bfloat16)
    several = {name: w.expand(3, *w.shape).contiguous() for name, w in one.weights.items()}
    forward = FusedForward(actor.model, torch.bfloat16, weights=several)
    prompt, uniform = (torch.zeros(9, width, dtype=torch.int64, device=device), torch.zeros(9, length, device=device))
    asked = Request(prompt, torch.ones_like(prompt), np.zeros((9, 1)), length, uniform, length)
    state = StaticBatch(actor, asked, torch.arange(9, device=device))
    state.position = np.repeat([0, 1, 2], [4, 2, 3])
    forward.extend_positions(width + length)
    step = state._begin(forward, 0)
    with OneDevice(), torch.no_grad():
        state._step(forward, step, 8)
        state._carry(step, 0, width)
    assert step.token.device == state.cache.memory.device == device
    assert state.cache.memory.shape == (config.num_hidden_layers, 2, 9, config.num_key_value_heads, 128, 8)
    with OneDevice(), pytest.raises(AssertionError, match="given tensors on"):
        torch.where(torch.ones(2, dtype=torch.bool), torch.zeros(2, device=device), torch.zeros(2, device=device))


def stand_ins(monkeypatch: pytest.MonkeyPatch, graph: Any) -> list[str]:
    """Replace CUDA's graphs and streams by Python; returns the list of steps taken and replayed."""
    steps: list[str] = []

    class Graph:
        def replay(self) -> None:
            steps.append("replay")

    class Stream:
        def wait_stream(self, other: Any) -> None: ...

    names = {"CUDAGraph": Graph, "Stream": Stream, "current_stream": Stream, "stream": nullcontext, "graph": graph}
    for name, stand_in in (names | {"device": nullcontext}).items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return steps


def test_a_cuda_graph_is_captured_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step before the capture, one captured, then replays only."""
    steps = stand_ins(monkeypatch, lambda g, **_: nullcontext())
    step = capture_step(lambda: steps.append("step"), torch.device("cuda"))
    for _ in range(3):
        step()
    assert steps == ["step", "step", *["replay"] * 3]


def test_a_step_is_captured_on_the_gpu_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and graphs are those of the current device, which with DEVICE=cuda:1 is another one: a graph captured
    there holds nothing."""
    steps, current = stand_ins(monkeypatch, lambda g, **_: nullcontext()), ["cuda:0"]

    @contextmanager
    def device(chosen: torch.device) -> Any:
        current.append(str(chosen))
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    capture_step(lambda: steps.append(current[-1]), torch.device("cuda:1"))()
    assert steps == ["cuda:1", "cuda:1", "replay"] and current == ["cuda:0"]


def test_a_step_that_cannot_be_captured_is_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def refuse(*_: Any, **__: Any) -> Any:
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    steps = stand_ins(monkeypatch, refuse)
    capture_step(lambda: steps.append("step"), torch.device("cuda"))()
    assert steps == ["step"] * 3
    assert "without CUDA graphs: operation not permitted" in caplog.text
    capture_step(lambda: steps.append("step"), torch.device("cpu"))()
    assert steps == ["step"] * 4
