"""What readers call a method: `ppo_clip` is PPO-clip, `vaco[delta=0.8]` is VACO, δ = 0.8."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.parsing import parse_algorithm, shown

METHODS = {
    "a3po": "A-3PO",
    "appo": "APPO",
    "cispo": "CISPO",
    "decoupled_ppo": "decoupled PPO",
    "deepseek_mask": "DeepSeek mask",
    "dppo": "DPPO",
    "espo": "ESPO",
    "geppo": "GePPO",
    "gspo": "GSPO",
    "icepop": "IcePop",
    "impala": "IMPALA",
    "k3_rejection": "K3 rejection",
    "m2po": "M2PO",
    "mis_geo": "geometric MIS",
    "mis_seq": "sequence MIS",
    "otb": "OTB",
    "p3o": "P3O",
    "ppo_clip": "PPO-clip",
    "ppo_kl": "PPO-KL",
    "seq_is": "sequence IS",
    "spo": "SPO",
    "tba": "TBA",
    "tis": "TIS",
    "topr": "TOPR",
    "truly_ppo": "Truly PPO",
    "vaco": "VACO",
    "vcpo": "VCPO",
}
OPTIONS = {"delta": "δ", "rho_bar": "ρ̄", "learning_rate": "learning rate", "kl_coef": "κ", "clip_high": "upper clip"}


def method(name: str) -> str:
    """A method without its options; one that is not known here keeps its name."""
    return METHODS.get(name, name)


def display(label: str, names: Mapping[str, str] | None = None) -> str:
    """A label as readers see it; `names` come first."""
    names = names or {}
    if names.get(label):
        return names[label]
    if label.endswith(")"):  # of a curve, with its lag model: `vaco[delta=0.8] (oldest)`
        plain, _, model = label.rpartition(" (")
        return f"{display(plain, names)} ({model}"
    plain, forward, n = label.partition(" N=")
    if names.get(plain):
        text = names[plain]
    elif "[" not in plain:
        text = method(plain)
    else:
        choice = parse_algorithm(plain)
        text = ", ".join([method(choice.name), *(option(k, v) for k, v in choice.options.items())])
    return f"{text}, N = {n}" if forward else text


def option(name: str, value: object) -> str:
    """`δ = 0.8`, `trust region none`."""
    if isinstance(value, str):
        value = value.removeprefix("fixed:")
        return f"{OPTIONS.get(name, name.replace('_', ' '))} {value}"
    said = f"{value:g}" if isinstance(value, float) else shown(value)
    return f"{OPTIONS.get(name, name.replace('_', ' '))} = {said}"
