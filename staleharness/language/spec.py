"""Settings of a run on prompts with verifiable answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ..base.cpp_library import compiler_version
from ..base.parsing import read_toml
from ..errors import UserError
from ..rollout_schedule import Demand
from ..spec import Aggregation, RunSpec, later
from ..tokens.token_run_spec import TokenSpec


@dataclass(frozen=True)
class LanguageSpec(TokenSpec):
    """A run on prompts with verifiable answers; `steps` counts optimiser steps.

    One phase is a generation round: `minibatches` (N, the forward lag) minibatches of `prompts` × `completions`
    are generated with the versions that the lag model assigns, then trained on one after the other.
    """

    steps: int = 256  # N of them in a generation round

    # the task
    model: str = ""  # a hub name or a folder; empty: the task's own
    data: str = ""  # a folder with train.jsonl and test.jsonl; empty: the task's own
    model_digest: str = ""  # of the files in the model's folder, filled in when a run is planned
    data_digest: str = ""
    # column of the question in the rows of `data`, a.b for an entry in a; empty: as the shape of the rows says
    question: str = later("", before="")
    answer: str = later("", before="")  # column of the answer: a number, or a solution that ends in one
    prompt_format: str = ""  # by name; empty: the task's own
    most_steps: int = later(0, before=0)  # longest worked solution of a problem; 0: any length
    training_problems: int = later(0, before=0)  # the first so many of the training split; 0: all
    # steps of supervised fine-tuning on the training solutions, before the run; no part of its phases
    warm_start: int = later(0, before=0)
    # problems of the warm start: the run's own, or the others of the training split
    warm_start_problems: Literal["same", "others"] = later("same", before="same")
    warm_start_most_steps: int = later(0, before=0)  # of the worked solutions of the warm start; 0: any
    # texts of the warm start: whole solutions, or only their calculations (problems without any are left out)
    warm_start_text: Literal["solutions", "equations"] = later("solutions", before="solutions")
    warm_start_rate: float = later(2e-5, before=2e-5)  # highest learning rate of the warm start
    # the model of a finished run, in its folder as model/, which transformers loads
    keep: Literal["none", "last"] = later("none", before="none")
    start: str = later("", before="")  # folder of a finished run whose model this one begins with, in place of `model`
    chat_template: bool = False  # the prompt as one user turn of the model's chat template (instruct models)
    extractor: str = ""  # rule to read the answer from a completion; empty: the prompt format's

    # generation, at temperature 1 without truncation of the distribution
    prompts: int = 32  # per minibatch
    completions: int = 8  # per prompt
    prompt_tokens: int = 512  # longest prompt
    long_prompts: Literal["refuse", "drop"] = "refuse"  # drop: the problems are left out, and counted
    completion_tokens: int = 512  # longest completion
    versions: Literal["full", "lora"] = "full"  # content of a version: all weights, or a LoRA adapter
    lora_rank: int = 32  # of the adapter
    lora_alpha: float = 32.0  # scale of the adapter, over its rank
    kv_cache: Literal["recompute", "keep"] = "recompute"  # where weights change inside a sequence
    # sampler of completions, by name; on a CPU native with learner=native, else shared_prompts in bfloat16, else
    # packed_weights with MODEL
    decoder: str = later("transformers", before="transformers")
    decode_batch: int = later(0, before=0)  # completions sampled together; 0: as many as memory allows, all on a CPU
    decoder_digest: str = later("", before="")  # of a third party's file, filled in when a run is planned

    # experts that the trainer's passes go through in a mixture of experts: its own choice, that of the version that
    # acted by the trainer's arithmetic (R2), or the sampler's (R3)
    routing_replay: Literal["none", "R2", "R3"] = later("none", before="none")

    # under a simulated pipeline
    # completions sampled only for the ledger: those never trained on, also those waiting, or none
    ledger: Literal["final", "every_phase", "trained"] = later("final", before="final")

    # advantage and loss
    baseline: Literal["grpo", "dr_grpo", "rloo", "none"] = "grpo"  # of the reward, per group
    dynamic_sampling: bool = False  # only groups whose rewards differ (DAPO); others are counted
    aggregation: Aggregation = "token-mean"  # reduction of the losses of tokens to one number
    mask_truncated: bool = False  # no training on completions cut at the limit; otherwise graded as they are
    weight_decay: float = 0.0  # of AdamW

    # learning
    learning_rate: float = 1e-6
    anneal_learning_rate: bool = False
    adam_epsilon: float = 1e-8
    discount: float = 1.0
    gae_lambda: float = 1.0
    normalise_advantage: bool = False  # the baseline has done it
    max_grad_norm: float = 1.0

    # evaluation: greedy completions of test problems
    evaluations: int = 8
    evaluation_problems: int = 0  # the first so many of the test split; 0: all
    # samples per test problem, besides the greedy completion, for sampled accuracy; 0: none
    evaluation_samples: int = later(0, before=0)

    # machine
    # implementation of scoring and training: torch, or C++ between its products, on a CPU (Qwen2, Llama)
    learner: Literal["torch", "native"] = later("torch", before="torch")
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the arithmetic; weights and optimiser stay float32
    gradient_checkpointing: bool = False  # recompute activations in the backward pass: less memory, more time
    micro_batch: int = 0  # completions in one forward pass; 0: as many as memory allows, all on a CPU

    fills_gpu: ClassVar[bool] = True
    phase_noun: ClassVar[str] = "generation round"
    alike: ClassVar[tuple[str, ...]] = (
        *RunSpec.alike,
        *"model prompts completions completion_tokens minibatches dtype versions".split(),
    )
    outside_id: ClassVar[frozenset[str]] = frozenset({"keep", "start"})
    of_evaluation: ClassVar[tuple[str, ...]] = (*RunSpec.of_evaluation, "evaluation_problems", "evaluation_samples")
    positive: ClassVar[str] = (
        f"{RunSpec.positive} prompts completions prompt_tokens completion_tokens lora_rank lora_alpha warm_start_rate"
    )
    not_negative: ClassVar[str] = (
        f"{RunSpec.not_negative} weight_decay evaluation_problems micro_batch decode_batch most_steps "
        "training_problems warm_start warm_start_most_steps evaluation_samples"
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = read_toml(Path(__file__).with_name("presets.toml"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.question) != bool(self.answer) or (self.question and not self.data):
            raise UserError("question= and answer= together name the columns of DATA=<folder>")
        if self.learner == "native":
            for name, instead in {"device": "cpu", "gradient_checkpointing": False}.items():
                if (value := getattr(self, name)) != instead:
                    raise UserError(f"learner=native has no {name}={value}; use learner=torch or {name}={instead}")
        if self.warm_start_problems == "others" and not (self.most_steps or self.training_problems):
            raise UserError(
                "warm_start_problems=others needs problems that the run does not train on; leave some out with "
                "most_steps or training_problems"
            )
        if self.dynamic_sampling and self.completions == 1:
            raise UserError("dynamic_sampling needs groups: completions must be at least 2")

    @property
    def sequences(self) -> int:
        """Completions per minibatch."""
        return self.prompts * self.completions

    @property
    def demand(self) -> Demand:
        groups = self.minibatches * self.prompts
        return Demand(self.phases, groups, self.completions, self.completion_tokens, self.seed)

    def corrections(self) -> set[str]:
        return {"worked_examples"} if self.prompt_format == "lm_eval_5shot" else set()  # were trained on, too

    def toolchain(self) -> dict[str, str]:
        return {"compiler": compiler_version()} if "native" in (self.learner, self.decoder) else {}

    @property
    def size(self) -> str:
        return (
            f"{self.steps} optimiser steps of {self.prompts} prompts x {self.completions} completions, "
            f"{self.steps_per_phase} per generation round"
        )

    def evaluation_count(self, final: bool, problems: int = 0) -> int:
        return (self.evaluation_problems or problems) * (1 + self.evaluation_samples)

    def probe(self) -> LanguageSpec:
        return dataclasses.replace(super().probe(), evaluation_problems=self.sequences)
