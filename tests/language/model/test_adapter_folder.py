"""A folder with an adapter of PEFT as MODEL: its base model with the adapter added, or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from language_fixtures import error_line

from staleharness.errors import UserError
from staleharness.language.model.model_loading import load
from staleharness.language.model.model_preflight import base_of, check_fits, check_model, is_chat
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask, model_digest


class Tasks(LanguageTask):
    """Takes the model of its spec."""

    def model(self, spec: LanguageSpec, progress: Any) -> str:
        return spec.model


def spec_of(model: Path) -> LanguageSpec:
    return LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=str(model))


@pytest.fixture
def adapter(tiny: Path, tmp_path: Path, own_cache: Path) -> Path:
    """An adapter of the tiny model, its matrices drawn at random, as PEFT writes it."""
    from peft import LoraConfig, get_peft_model

    _, model = load(str(tiny))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        wrapped = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
        for name, p in wrapped.named_parameters():
            if "lora_" in name:
                p.data.normal_(std=0.3)
    wrapped.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_its_weights_are_those_of_base_and_adapter(adapter: Path, tiny: Path) -> None:
    from peft import PeftModel

    spec = spec_of(adapter)
    check_model(spec)
    check_fits(spec)
    folder, warnings = Tasks().weights(spec, lambda text: None)
    assert (
        warnings == [] and base_of(str(adapter)) == str(tiny) and base_of(folder) is None and not is_chat(str(adapter))
    )
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        found, plain = load(folder)[1](ids).logits, load(str(tiny))[1](ids).logits
        expected = PeftModel.from_pretrained(load(str(tiny))[1], str(adapter))(ids).logits
    assert torch.allclose(found, expected, atol=1e-4) and not torch.allclose(found, plain, atol=0.1)
    assert Tasks().weights(spec, lambda text: pytest.fail("made twice"))[0] == folder


def test_another_adapter_or_base_is_another_run(adapter: Path, model: Path) -> None:
    first = model_digest(str(adapter))
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": str(model)}))
    second = model_digest(str(adapter))
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    assert len({first, second, model_digest(str(adapter))}) == 3


@pytest.mark.parametrize(
    "change, words",
    [
        ({"base_model_name_or_path": None}, "names no base model"),
        ({"base_model_name_or_path": 3}, "names no base model"),
        ({"base_model_name_or_path": "/no/such/model"}, "MODEL=/no/such/model is not a folder here"),
        (None, "is an adapter without adapter_model.safetensors"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_one_line(adapter: Path, change: dict[str, Any] | None, words: str) -> None:
    if change is None:
        (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    else:
        config = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps({**config, **change}))
    assert words in error_line(lambda: check_model(spec_of(adapter)))


def test_a_damaged_adapter_is_one_line(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"the adapter does not fit its base model") as caught:
        Tasks().weights(spec_of(adapter), lambda text: None)
    assert "\n" not in str(caught.value)
