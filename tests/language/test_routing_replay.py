"""Runs of a mixture of experts: what sampler and trainer choose, and replay of either's choice."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
import torch
from language_fixtures import Specs, error_line
from torch import Tensor
from whole_runs import all_equal, assert_resumes, metrics_of, run_whole

from staleharness.errors import UserError
from staleharness.language.decoder_interface import DECODERS
from staleharness.language.in_process_decoders import TransformersDecoder
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.routing import ANY_EXPERT
from staleharness.language.sampler import concatenate
from staleharness.language.spec import LanguageSpec
from staleharness.language.supervised_learning import initial
from staleharness.running.plan import plan
from staleharness.study import sweep_request
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

pytestmark = pytest.mark.usefixtures("grades_by_length")
DIFFERS, KL = "mismatch/routing_differs", "mismatch/kl_k3"
PACED = "queue[row_time=4.0,pace=length]"


def rounds(spec: Any) -> tuple[Any, list[Any]]:
    """The simulation, run to its end, and the completions of each round."""
    simulation: Any = simulation_of(spec)
    collect, made = simulation.collect, []

    def watch(phase: int) -> Any:
        collected = collect(phase)
        made.append(collected.data)
        return collected

    simulation.collect = watch
    for _ in simulation:
        pass
    return simulation, made


def own_choice(model: Any, prompt: Tensor, prompt_mask: Tensor, token: Tensor, count: int) -> Tensor:
    """The sets of experts [n, layers, k] of a row's tokens but the last, by transformers' account of its routers."""
    ids = torch.cat([prompt[prompt_mask.bool()], token[:count]])[None]
    with torch.no_grad():
        logits = model(ids, output_router_logits=True).router_logits
    return torch.stack([each.topk(2).indices.sort(-1).values for each in logits], 1)[:-1]


def test_the_sampler_reports_the_experts_of_each_row_alone(mixture: Specs) -> None:
    simulation, made = rounds(mixture(steps=1, prompts=8, learning_rate=1e-12, routing_replay="R3"))
    data, rows = made[0], 0
    assert data.experts.dtype == torch.int16
    for row in range(len(data.token)):
        count, width = int(data.mask[row].sum()), data.prompt.shape[1]
        pads = width - int(data.prompt_mask[row].sum())
        expected = own_choice(simulation.policy.model, data.prompt[row], data.prompt_mask[row], data.token[row], count)
        found = data.experts[row, pads : width + count - 1].long().sort(-1).values
        rows += bool(torch.equal(found, expected))
        assert (data.experts[row, width + count - 1 :] == ANY_EXPERT).all() and (
            data.experts[row, :pads] == ANY_EXPERT
        ).all()
    assert rows == len(data.token)
    assert float(data.routing_differs.max()) == 0.0


@pytest.mark.parametrize("replay", ["R2", "R3"])
def test_on_policy_replay_of_the_same_weights_changes_nothing(mixture: Specs, replay: str) -> None:
    """One step a round: the learner's own choice is what is forced. Decoding and teacher forcing choose alike."""
    (plain, x), (replayed, y) = (run_whole(mixture(routing_replay=text)) for text in ("none", replay))
    assert plain == replayed and all_equal(x, y)


@pytest.mark.parametrize("settings", [{"minibatches": 2}, {"capacity": 3, "lag": "oldest"}], ids=["steps", "lag"])
def test_replay_counts_once_the_learner_has_moved(mixture: Specs, settings: dict[str, Any]) -> None:
    plain, replayed = (metrics_of(mixture(routing_replay=text, **settings)) for text in ("none", "R3"))
    assert plain[0]["reward"] == replayed[0]["reward"] and plain != replayed


@pytest.mark.parametrize("mismatch", ["int4", "noise:0.2"])
def test_replay_of_the_sampler_brings_the_trainer_nearer(mixture: Specs, mismatch: str) -> None:
    settings = {"mismatch": mismatch, "steps": 1, "prompts": 40}
    none, r2, r3 = (metrics_of(mixture(routing_replay=text, **settings))[0] for text in ("none", "R2", "R3"))
    assert 0.02 < none[DIFFERS] < 1.0 and none[DIFFERS] == r2[DIFFERS]
    assert r2[KL] == none[KL] and r3[KL] < 0.9 * none[KL]


def test_a_copy_leaves_routers_as_they_are(mixture: Specs) -> None:
    simulation: Any = simulation_of(mixture(mismatch="int4"))
    simulation.buffer.push(simulation.policy.snapshot(0, 0))
    copied = simulation.sampler.acting(simulation.buffer)[0].tensors
    same = {
        name.split("layers.")[-1] for name, p in simulation.policy.parameters.items() if torch.equal(p, copied[name])
    }
    assert {"0.mlp.gate.weight", "1.mlp.gate.weight"} <= same
    assert not {"0.mlp.experts.gate_up_proj", "1.mlp.experts.down_proj", "0.self_attn.q_proj.weight"} & same


@pytest.mark.parametrize("replay", ["R2", "R3"])
def test_replayed_experts_are_those_of_the_acting_version(mixture: Specs, tiny_mixture: Any, replay: str) -> None:
    """R2: of the version's weights; R3: of the copy that sampled in its place."""
    asked = mixture(capacity=3, lag="oldest", steps=3, mismatch="int4", routing_replay=replay)
    simulation, made = rounds(asked)
    data = made[-1]
    assert set(data.version.unique().tolist()) == {0}
    buffer = simulation.buffer if replay == "R2" else simulation.sampler.acting(simulation.buffer)
    other = CausalLM(str(tiny_mixture), asked)
    with torch.no_grad():
        for name, p in other.parameters.items():
            p.copy_(buffer[0].tensors[name])
    for row in range(len(data.token)):
        count, width = int(data.mask[row].sum()), data.prompt.shape[1]
        pads = width - int(data.prompt_mask[row].sum())
        expected = own_choice(other.model, data.prompt[row], data.prompt_mask[row], data.token[row], count)
        assert torch.equal(data.experts[row, pads : width + count - 1].long().sort(-1).values, expected)


def test_every_pass_of_the_learner_is_through_them(mixture: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradient, in whole and by rows, in pieces, and the policy at the start of the phase; not the evaluation."""
    given, score = [], CausalLM.score

    def watch(self: CausalLM, *arguments: Any, **named: Any) -> Any:
        given.append(named.get("experts"))
        return score(self, *arguments, **named)

    monkeypatch.setattr(CausalLM, "score", watch)
    for algorithm in ("decoupled_ppo", "otb"):
        given.clear()
        settings = {"steps": 2, "minibatches": 2, "micro_batch": 3, "capacity": 2, "lag": "oldest"}
        run_whole(mixture(algorithm=algorithm, routing_replay="R3", **settings))
        assert len(given) > 6 and all(x is not None for x in given)


@pytest.mark.parametrize(
    "settings", [{"capacity": 3, "lag": "oldest"}, {"capacity": 9, "lag": PACED, "completion_tokens": 16}], ids=str
)
def test_a_stopped_run_with_replay_goes_on_to_the_same_bits(mixture: Specs, settings: dict[str, Any]) -> None:
    assert_resumes(mixture(steps=5, mismatch="int4", routing_replay="R3", evaluations=2, **settings), 3)


def test_groups_kept_for_later_keep_their_experts(mixture: Specs) -> None:
    """A pipeline samples groups as they begin, in batches of other widths than those it trains on."""
    asked = mixture(steps=4, capacity=9, lag=PACED, completion_tokens=16, prompts=6, routing_replay="R3")
    _, made = rounds(asked)
    data = made[-1]
    assert len(set(data.prompt_mask.sum(1).tolist())) > 1
    for row in range(len(data.token)):
        count, width = int(data.mask[row].sum()), data.prompt.shape[1]
        pads = width - int(data.prompt_mask[row].sum())
        assert (data.experts[row, pads : width + count - 1] >= 0).all() and (
            data.experts[row, :pads] == ANY_EXPERT
        ).all()
        assert (data.experts[row, width + count - 1 :] == ANY_EXPERT).all()


def test_batches_of_other_widths_join(mixture: Specs) -> None:
    _, made = rounds(mixture(steps=2, routing_replay="R3"))
    together = concatenate(list(made), 0)
    assert together.experts is not None
    half, width = len(made[0].token), together.prompt.shape[1]
    for batch, rows in ((made[0], slice(0, half)), (made[1], slice(half, None))):
        left, columns = width - batch.prompt.shape[1], batch.experts.shape[1]
        assert torch.equal(together.experts[rows, left : left + columns], batch.experts)
        assert (together.experts[rows, :left] == ANY_EXPERT).all() and (
            together.experts[rows, left + columns :] == ANY_EXPERT
        ).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gradient_checkpointing": True}, "gradient_checkpointing"),
        ({"lag": "inflight:3", "capacity": 2}, "changes weights inside a completion"),
        ({"lag": "async[fetch=4]", "capacity": 2}, "changes weights inside a completion"),
        ({"lag": "pipeline_rl", "capacity": 4}, "changes weights inside a completion"),
        ({"decoder": "silent"}, "does not report experts; give R2"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    mixture: Specs, settings: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECODERS._classes, "silent", type("Silent", (TransformersDecoder,), {"reports_experts": False}))
    task = find_env("word-problems")[1]
    assert words in error_line(lambda: task.check(mixture(routing_replay="R3", **settings)))


def test_dense_models_have_nothing_to_replay(spec: Specs, tiny: Any) -> None:
    task = find_env("word-problems")[1]
    for asked in (spec(routing_replay="R2"), spec(routing_replay="R3", model="")):
        assert "is for a mixture of experts" in error_line(partial(task.check, asked))
    with pytest.raises(UserError, match="is for a mixture of experts"):
        CausalLM(str(tiny), spec(routing_replay="R3"))  # a model of the hub, known once it is loaded


def test_replay_is_in_the_id_only_where_it_is_on() -> None:
    """And the problems are, by the file that they are written in."""
    ids = {}
    for text in ("none", "R2", "R3"):
        (planned,) = plan(
            sweep_request(env="word-problems-moe", algo="ppo_clip", seeds="1", settings=f"routing_replay={text}")
        ).runs
        assert isinstance(planned.spec, LanguageSpec) and planned.spec.data_digest
        ids[text] = planned.run_id
    plain = sweep_request(env="word-problems-moe", algo="ppo_clip", seeds="1")
    assert ids["none"] == plan(plain).runs[0].run_id and len(set(ids.values())) == 3


def test_the_tasks_model_is_a_mixture_of_the_size_that_is_told() -> None:
    words = sys.modules[find_env("word-problems-moe")[1].__module__]
    config = words.config()
    assert (config.model_type, config.num_experts, config.num_experts_per_tok) == ("qwen3_moe", 8, 2)
    size = sum(p.numel() for p in initial(config, 0).parameters())
    assert 100_000 < size < 120_000
