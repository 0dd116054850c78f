"""torch.compile(model, backend="cutlass_fused")"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..._when_imported import when_imported

NAME = "cutlass_fused"


def compile_graph(
    graph: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable:
    """Inductor, with the pass of `cutlass_fused.inductor_options`.

    mode: of torch.compile. options: those of Inductor, and `precision`.
    """
    # Not above: it imports Inductor.
    from torch._inductor.compile_fx import compile_fx

    from ._options import inductor_options

    others = dict(options or {})
    precision = others.pop("precision", None)
    patches = inductor_options(others, mode=mode, precision=precision)
    return compile_fx(graph, inputs, config_patches=patches)


def register_when_imported() -> None:
    """Tell TorchDynamo of the backend once a program imports it. This package does not."""
    when_imported("torch._dynamo.backends.registry", _register)


def _register(module) -> None:
    """Unless the entry point of this package has been found, which registers it when it is used."""
    register = getattr(module, "register_backend", None)
    if register is not None and NAME not in getattr(module, "_BACKENDS", ()):
        register(compile_graph, name=NAME)
