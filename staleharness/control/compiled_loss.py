"""The policy loss of a method and its gradient as compiled code (`learner=compiled`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..base.artifact_cache import cache_folder
from ..batch import Decisions, PolicyLoss
from ..training.hook_checks import loss_of

INPUTS = "target_logp behaviour_logp proximal_logp advantage lag gradient_lag mask continues version_logp".split()
TOLERANCE = 1e-6  # by which a compiled gradient may differ from autograd's, relative to the largest element

CompiledFunction = Callable[..., tuple[Tensor, ...]]


class CompiledLoss:
    """Traces `policy_loss` and its gradient once per shape, and compiles the trace with TorchInductor.

    A trace is a fixed list of tensor operations, so a loss that reads `state` or `progress`, takes a closed-form KL,
    draws random numbers, or branches on values stays eager; so does one whose compiled gradient differs from
    autograd's by more than `TOLERANCE`. Both are decided on an example of the same shape, not on the data at hand, and
    code is compiled only for minibatches of `rows` rows, so that a run that resumes continues with the same code.
    """

    def __init__(self, algorithm: Algorithm, rows: Container[int]) -> None:
        self.algorithm, self.rows = algorithm, rows
        self.functions: dict[torch.Size, tuple[CompiledFunction, list[str]] | None] = {}  # None: eager

    def __call__(self, decisions: Decisions) -> tuple[PolicyLoss, Tensor] | None:
        """Return the loss with its diagnostics and its gradient [B, T] with respect to the mean over decisions of
        `target_logp`; None where the loss stays eager."""
        shape = decisions.target_logp.shape
        if shape[0] not in self.rows:
            return None
        if shape not in self.functions:
            self.functions[shape] = self._compile(_example(decisions))
        if (entry := self.functions[shape]) is None:
            return None
        function, names = entry
        gradient, loss, *diagnostics = function(*_inputs(decisions))
        return PolicyLoss(loss.requires_grad_(), dict(zip(names, diagnostics, strict=True))), gradient

    def _compile(self, decisions: Decisions) -> tuple[CompiledFunction, list[str]] | None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        from torch._inductor import compile as compile_graph
        from torch.fx.experimental.proxy_tensor import make_fx

        names: list[str] = []
        fields = [name for name in INPUTS if getattr(decisions, name) is not None]
        unknown: Any = _Untraceable()
        untraceable = replace(decisions, state=unknown, progress=unknown, analytic_kl=unknown)

        def evaluate(*tensors: Tensor) -> list[Tensor]:
            inputs: dict[str, Any] = dict(zip(fields, tensors, strict=True))
            logp = inputs["target_logp"] = inputs["target_logp"].detach().requires_grad_()
            answer = loss_of(self.algorithm, replace(untraceable, **inputs))
            mask = inputs["mask"]
            (gradient,) = torch.autograd.grad(answer.loss, logp, mask / mask.numel())
            names[:] = answer.diagnostics
            return [gradient, answer.loss.detach(), *(x.detach() for x in answer.diagnostics.values())]

        inputs = _inputs(decisions)
        with torch.enable_grad():
            try:
                expected = evaluate(*inputs)
                graph = make_fx(evaluate, tracing_mode="fake")(*inputs)
            except Exception:  # of the method, or of an operation that has no value to work on
                return None
        if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in graph.graph.nodes):
            return None
        function: CompiledFunction = compile_graph(graph, list(inputs))
        outputs = function(*inputs)
        limit = TOLERANCE * max(float(expected[0].abs().max()), 1e-12)
        return (function, names) if float((outputs[0] - expected[0]).abs().max()) <= limit else None


class _Untraceable:
    """Raises an error whatever is done with it."""

    def _raise(self, *_: Any) -> Any:
        raise TypeError("not a tensor operation")

    __call__ = __getitem__ = __getattr__ = __iter__ = __float__ = _raise


def _example(decisions: Decisions) -> Decisions:
    """Decisions of the same shape and fields, with fixed numbers."""
    shape, generator = decisions.target_logp.shape, torch.Generator().manual_seed(0)

    def draw(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=generator)

    target = draw(1.0) - 1.0
    numbers = {
        "target_logp": target,
        "behaviour_logp": target + draw(0.3),
        "proximal_logp": target + draw(0.3),
        "advantage": draw(1.0),
        "lag": draw(2.0).abs().floor(),
        "gradient_lag": draw(8.0).abs().floor(),
        "mask": torch.ones(shape),
        "continues": (draw(1.0) > 0).float(),
        "version_logp": target + draw(0.3),
    }
    real = {name: getattr(decisions, name) for name in INPUTS}
    fields: dict[str, Any] = {name: numbers[name].to(x) for name, x in real.items() if x is not None}
    return replace(decisions, **fields)


def _inputs(decisions: Decisions) -> list[Tensor]:
    tensors = (getattr(decisions, name) for name in INPUTS)
    return [x.detach() if x.requires_grad else x for x in tensors if x is not None]
