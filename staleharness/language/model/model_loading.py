"""Loading of a causal language model and its tokenizer from a folder or the hub, and its LoRA adapter."""

from __future__ import annotations

import contextlib
import copy
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch

from ...base.artifact_cache import build_once
from ...base.files import read_json
from ...base.parsing import user_path
from ...base.streams import global_generators_restored
from ...base.system_info import memory, package_version
from ...errors import UserError, missing_extra, one_line, shorten
from ..spec import LanguageSpec
from .fused_forward import supports_fused_forward
from .gguf_conversion import missing_weights
from .model_preflight import is_causal, types_in

# Names of rates at which layers are random. PhiMoE's router_jitter_noise is none, but a threshold of its routing.
RANDOM_RATE = re.compile("dropout|layerdrop|pdrop|(?<!router_)jitter")
# Names of masks and frequencies that earlier releases of transformers saved with the weights.
MASK = re.compile(r"(attn|attention)\.(masked_)?bias$|\.inv_freq$|position_ids$")

IN_BY_OUT_MODULES = ("Conv1D", "GptOssExperts", "Llama4TextExperts")  # modules whose matrices are [in, out]


def load(source: str) -> tuple[Any, Any]:
    """Return (tokenizer, model) from a folder or the hub, weights in float32. No code of the model's own is executed.

    Raises `UserError` for a source that is neither, a model that is not causal, and a missing tokenizer.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    unusable = (
        "has no usable config.json"
        if Path(source).is_dir()
        else "is neither a folder nor a model that can be fetched from the hub"
    )
    with user_errors(f"MODEL={source} {unusable}"):
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    architectures = config.architectures or []
    if not is_causal(architectures):
        raise UserError(f"MODEL={source} is {architectures[0]}, which is not a causal language model")
    return tokenizer_of(source), _model(source, config)


def tokenizer_of(source: str) -> Any:
    """Return the tokenizer in a folder or on the hub. Raises `UserError` where there is none."""
    with user_errors(f"MODEL={source} has no tokenizer that transformers can load"):
        return _tokenizer_class(source).from_pretrained(source, trust_remote_code=False)


def _model(source: str, config: Any) -> Any:
    """Load the model. Raises `UserError` for a recurrent one, for weights that its files lack, which transformers would
    draw at random, for weights that it does not have, and for weights of another shape or that are not finite."""
    import transformers

    with user_errors(f"MODEL={source} cannot be loaded"), torch.device("meta"):
        meta_model = transformers.AutoModelForCausalLM.from_config(
            copy.deepcopy(config), dtype=torch.float32, trust_remote_code=False
        )
        keeps_tokens = _caches_every_token(meta_model)
    if not keeps_tokens:
        raise UserError(
            f"MODEL={source} is recurrent in some layers ({config.model_type}), whose state cannot be read again from "
            "a token on; give a model with attention in all layers"
        )
    if (size := 4 * sum(w.numel() for w in meta_model.parameters())) > (room := memory()):
        raise UserError(
            f"MODEL={source} has a config.json that asks for {size / 1e9:,.0f} GB, and this machine has "
            f"{room / 1e9:,.0f} GB"
        )
    _check_types(source, config)
    with user_errors(f"MODEL={source} cannot be loaded"):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, trust_remote_code=False
        )
    if lacking := missing_weights(info):
        raise UserError(f"MODEL={source} lacks {lacking}, which its config.json asks for")
    if extra := sorted(name for name in info["unexpected_keys"] if not MASK.search(name)):
        raise UserError(
            f"MODEL={source} has {', '.join(extra[:3])}{' and more' if extra[3:] else ''}, for which its config.json "
            f"({config.model_type}) makes no place; give the config.json that belongs to the weights"
        )
    if other := sorted(info["mismatched_keys"]):
        name, shape, expected_shape = other[0]
        raise UserError(
            f"MODEL={source} has {name} of shape {list(shape)}, where its config.json makes it {list(expected_shape)}"
        )
    if broken := next((name for name, w in model.named_parameters() if not w.isfinite().all()), ""):
        raise UserError(f"MODEL={source} has weights that are not finite, in {broken}; fetch or save it again")
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is not None and head.weight is not embedding.weight:  # files with two keep both, whatever config.json says
        model.config.tie_word_embeddings = False  # otherwise a saved copy would lose the head
    return model


def _check_types(source: str, config: Any) -> None:
    """Raise `UserError` where a folder holds weights as integers without the settings that say what they stand for:
    transformers would take the codes for the weights."""
    if not Path(source).is_dir() or getattr(config, "quantization_config", None) is not None:
        return
    for name, kind in types_in(Path(source)):
        if name.endswith("weight") and kind[0] in "IU":
            raise UserError(
                f"MODEL={source} has {name} as integers ({kind}), and its config.json has no quantization_config that "
                "says what they stand for; give weights in float32, bfloat16 or float16"
            )


def _caches_every_token(model: Any) -> bool:
    """Return whether all layers cache keys and values of tokens, which padding and shared prompts rely on; those of
    recurrent and hybrid models cache a state."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    layers = {type(layer) for layer in DynamicCache(config=model.config).layers}
    return not getattr(model, "_is_stateful", False) and layers <= {DynamicLayer, DynamicSlidingWindowLayer}


@contextlib.contextmanager
def user_errors(problem: str) -> Iterator[None]:
    """Turn any exception that a library raises on foreign files into a `UserError`: the problem, and the beginning of
    the library's message."""
    try:
        yield
    except Exception as error:
        words = one_line(error) or type(error).__name__
        raise UserError(f"{problem}: {shorten(words, 160)}") from error


def _tokenizer_class(source: str) -> Any:
    """Return the generic class where a folder's tokenizer settings name it: `AutoTokenizer` would take the
    architecture's usual tokenizer instead, which splits text differently."""
    import transformers

    settings = Path(source) / "tokenizer_config.json"
    class_name = read_json(settings).get("tokenizer_class") if settings.is_file() else None
    generic = class_name in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return transformers.PreTrainedTokenizerFast if generic else transformers.AutoTokenizer


def with_lora(model: Any, spec: LanguageSpec) -> Any:
    """Return the model with one LoRA adapter on all linear layers but the head; everything else is frozen."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise missing_extra("versions=lora", "llm") from error
    config = LoraConfig(r=spec.lora_rank, lora_alpha=spec.lora_alpha, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]):  # PEFT draws A from the global generator
        torch.manual_seed(spec.seed)
        return get_peft_model(model, config)


def disable_dropout(model: torch.nn.Module) -> None:
    """Set to 0 the dropout of all layers, and the other rates at which layers are random in training mode, whether a
    layer reads them from itself or from the model's settings."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        _zero_rates(module)
        if (config := getattr(module, "config", None)) is not None:
            _zero_rates(config)


def _zero_rates(owner: Any) -> None:
    """Set to 0 the attributes that are numbers and named as rates of random layers; a layer may have such a name,
    too."""
    for name, value in list(vars(owner).items()):
        if isinstance(value, float) and RANDOM_RATE.search(name):
            setattr(owner, name, 0.0)


def enable_checkpointing(model: Any, with_adapter: bool) -> None:
    """Let a model recompute its layers for their gradients; `with_adapter`: the gradients of its LoRA adapter. Raises
    `UserError` for a model that is another one in training mode, without which transformers recomputes nothing."""
    with warnings.catch_warnings():  # later releases have another name for it, and still accept this one
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if with_adapter:
        model.enable_input_require_grads()
    if not supports_fused_forward(model.get_base_model() if with_adapter else model):
        _check_training_mode(model)


def _check_training_mode(model: Any) -> None:
    """Raise `UserError` for a model that draws at random in training mode, or is another function there."""
    ids = torch.arange(8, device=model.device)[None] % model.get_input_embeddings().weight.shape[0]
    generator = torch.cuda.default_generators[ids.get_device()] if ids.is_cuda else torch.default_generator
    with torch.no_grad(), global_generators_restored():
        expected = model.eval()(input_ids=ids, use_cache=False).logits
        state = generator.get_state()
        logits = model.train()(input_ids=ids, use_cache=False).logits
        draws = not torch.equal(generator.get_state(), state)
    model.eval()
    if draws or not torch.allclose(logits, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
        raise UserError(
            f"gradient_checkpointing=true computes in training mode, where this model ({model.config.model_type}) "
            f"{'draws at random' if draws else 'gives other logits'}; give gradient_checkpointing=false"
        )


def merge_adapter(model: str, base: str, digest: str, progress: Callable[[str], None]) -> Path:
    """Return a folder with the base model and PEFT's adapter in the folder `model` added to its weights, made at the
    first call and cached under the `digest` of both. Raises `UserError` for an adapter that does not fit."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise missing_extra(f"MODEL={shorten(model)}, an adapter", "llm") from error

    def make(folder: Path) -> None:
        progress("adding the adapter to its base model, once")
        tokenizer, source = load(base)
        with user_errors(f"MODEL={model}: the adapter does not fit its base model {base}"):
            model_with_adapter = PeftModel.from_pretrained(
                source, str(user_path(model)), trust_remote_code=False
            ).merge_and_unload()
        model_with_adapter.save_pretrained(folder)
        has_tokenizer = any(user_path(model).glob("tokenizer*"))
        (tokenizer_of(model) if has_tokenizer else tokenizer).save_pretrained(folder)

    return build_once("adapters", f"{digest}-{package_version('transformers')}-{package_version('peft')}", make)


def in_by_out_matrices(model: torch.nn.Module) -> list[str]:
    """Return the names of the matrices stored as [in, out] or [experts, in, out], where `torch.nn.Linear` has
    [out, in]: those of GPT-2's `Conv1D` and of some mixtures' experts."""
    return [
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if type(module).__name__ in IN_BY_OUT_MODULES or getattr(module, "is_transposed", False)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.ndim >= 2 and not name.endswith("bias")
    ]


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a completion: those of the generation settings, then the tokenizer's own. Raises
    `UserError` for settings that are no token ids, and where there is no end."""
    eos = getattr(model.generation_config, "eos_token_id", None)
    ends = list(eos) if isinstance(eos, list | tuple) else [] if eos is None else [eos]
    if wrong := [end for end in ends if type(end) is not int or end < 0]:
        raise UserError(
            f"generation_config.json has the eos_token_id {shorten(repr(wrong[0]))}, which is not a token id; give a "
            "whole number or a list of them"
        )
    if tokenizer.eos_token_id is not None:
        ends.append(tokenizer.eos_token_id)
    if not ends:
        raise UserError(
            "neither the tokenizer nor generation_config.json names an end-of-sequence token, so no completion could "
            "end"
        )
    return list(dict.fromkeys(ends))


def trailing_special_tokens(tokenizer: Any) -> int:
    """Return how many special tokens a tokenizer puts after every text, as with `add_eos_token`."""
    special = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
    return len(list(takewhile(bool, reversed(special))))
