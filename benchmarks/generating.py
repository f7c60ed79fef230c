"""Completions sampled by a real pretrained model on CPU cores: ours against `generate` of transformers and the bound.

    python benchmarks/generating.py [--quick] [--prompts 8 --completions 4 --tokens 64 --threads 1]
        [--dtype bfloat16]

The model is SmolLM2-135M (`MODEL=smollm2`), the prompts are questions in its chat template, and nothing ends before the
limit, so that all sample the same number of tokens at temperature 1. Ours is the decoder `native`; `packed_weights`,
`shared_prompts` and `transformers` are beside it. `generate` is as transformers ships it, with its cache, and reads a
prompt once per completion. The first bound is matrix products alone, as torch does them: those of every layer and of
the logits for each token that is sampled, and those of every layer for each prompt read once, with the same rows at a
time. The second has attention beside them, row by row over all keys and values, as torch does it. The third is the
products alone, with weights laid out for oneDNN beforehand.

Each takes its turn (ours, theirs, the bounds, ours, ...). Printed are tokens per second and the ratios: the median over
the rounds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench_table import show

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

LEAST = 0.85  # of the speed of packed products
QUESTIONS = (
    "Tom has {a} apples and buys {b} more. How many apples does he have?",
    "A box holds {a} pens. How many pens do {b} boxes hold?",
    "Mia had {a} stickers and gave {b} of them away. How many has she left?",
)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--completions", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="PRESET=smollm2 has one, as have the loops in C++")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds of 24 tokens")
    options = parser.parse_args(words)
    if options.quick:
        options.tokens, options.rounds = 24, 2
    ways = variants(options)
    sampled = options.prompts * options.completions * options.tokens
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        for name, act in ways.items():
            begin = time.perf_counter()
            act()
            if turn:  # the first round warms up
                seconds[name].append(time.perf_counter() - begin)
    print(
        f"{options.prompts} prompts x {options.completions} completions x {options.tokens} tokens, "
        f"{options.dtype}, {options.threads} threads, {len(seconds['ours'])} rounds"
    )
    for name, times in seconds.items():
        rates = [sampled / each for each in times]
        print(f"  {name:24} {spread(rates, '.0f')} tokens/s")
    for name in (name for name in seconds if name != "ours"):
        ratios = [other / ours for ours, other in zip(seconds["ours"], seconds[name], strict=True)]
        has_bar = name == "packed products" and options.dtype == "float32" and options.threads == 1
        show(f"sampling SmolLM2-135M / {name}", ratios, f">= {LEAST}" if has_bar else "")
    return 0


def spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def variants(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Return the functions to time, by name."""
    import numpy as np
    import torch

    from staleharness.base.system_info import keep_freed_memory
    from staleharness.language.decoder_interface import Request
    from staleharness.language.in_process_decoders import make_decoder
    from staleharness.language.model.causal_lm_policy import CausalLM
    from staleharness.language.model.matrix_products import linear
    from staleharness.language.prompt_formatting import pad_left
    from staleharness.language.spec import LanguageSpec
    from staleharness.task import find_env
    from staleharness.training.policy_buffer import PolicyBuffer

    keep_freed_memory()  # as every run of ours does
    torch.set_num_threads(options.threads)
    torch.set_deterministic_debug_mode("error")  # as every run of ours has it
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
    spec = LanguageSpec.from_dict(
        {
            "env": "gsm8k",
            "algorithm": "ppo_clip",
            "model": "smollm2",
            "completion_tokens": options.tokens,
            "threads": options.threads,
            "dtype": options.dtype,
        }
    )
    source, _ = find_env("gsm8k")[1]().weights(spec, print)  # type: ignore[attr-defined]
    policy = CausalLM(source, spec)
    policy.end = [-1]  # no token ends a completion
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(0, 0))
    tokens = [
        policy.tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTIONS[i % len(QUESTIONS)].format(a=i + 2, b=i + 3)}],
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for i in range(options.prompts)
    ]
    prompt, mask = (x.repeat_interleave(options.completions, 0) for x in pad_left(tokens, policy.pad, policy.device))
    uniform = torch.from_numpy(np.random.default_rng(0).random((len(prompt), options.tokens), np.float32))
    versions = np.zeros((len(prompt), 1), np.int64)
    request = Request(prompt, mask, versions, options.tokens, uniform, options.tokens)
    decoders = {"ours": "native"} | {name: name for name in ("packed_weights", "shared_prompts", "transformers")}

    def sample_with(decoder: Any) -> None:
        assert decoder.complete(request, buffer).mask.sum() == len(prompt) * options.tokens

    plain = copy.deepcopy(policy.model).to(policy.precision)

    def generate() -> None:
        torch.manual_seed(0)
        torch.set_deterministic_debug_mode("default")  # as its users have it
        answer = plain.generate(
            prompt,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=options.tokens,
            min_new_tokens=options.tokens,
            pad_token_id=policy.pad,
        )
        torch.set_deterministic_debug_mode("error")
        assert answer.shape[1] == prompt.shape[1] + options.tokens

    layers, kind = policy.model.model.layers, policy.precision
    inside = [part.weight.detach().to(kind) for part in layers.modules() if isinstance(part, torch.nn.Linear)]
    matrices = [*inside, policy.model.get_output_embeddings().weight.detach().to(kind)]
    laid_out = [torch.ops.mkldnn._reorder_linear_weight(weight) for weight in matrices]

    def rows(count: int) -> dict[int, Any]:
        return {weight.shape[1]: torch.randn(count, weight.shape[1], dtype=kind) for weight in matrices}

    sampled_inputs, prompt_inputs = rows(len(prompt)), rows(sum(map(len, tokens)))

    config = policy.model.config
    width = config.hidden_size // config.num_attention_heads
    room = prompt.shape[1] + options.tokens
    query = torch.randn(len(prompt), config.num_attention_heads, 1, width, dtype=kind)
    caches = [torch.randn(2, len(prompt), config.num_key_value_heads, room, width, dtype=kind) for _ in layers]

    def products(weights: Sequence[Any], attention: bool = False) -> None:
        with torch.no_grad():
            for weight in weights[:-1]:
                linear(prompt_inputs[weight.shape[1]], weight, None)
            for length in range(prompt.shape[1], room):
                for weight in weights:
                    linear(sampled_inputs[weight.shape[1]], weight, None)
                for cache in caches if attention else ():
                    keys, values = cache[..., :length, :]
                    torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    return {
        **{name: partial(sample_with, make_decoder(decoder, policy)) for name, decoder in decoders.items()},
        "generate": generate,
        "products alone": partial(products, matrices),
        "and attention": partial(products, matrices, attention=True),
        "packed products": partial(products, laid_out),
    }


if __name__ == "__main__":
    sys.exit(main())
