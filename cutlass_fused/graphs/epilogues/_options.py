"""What torch.compile is given to have the pass."""

from collections.abc import Mapping
from typing import Any

from ...precision import Precision, check_precision

_SETTING = "post_grad_custom_pre_pass"


def inductor_options(
    options: Mapping[str, Any] | None = None,
    *,
    mode: str | None = None,
    precision: Precision | None = None,
) -> dict[str, Any]:
    """Options of Inductor's with a pass that has products computed with what follows them.

        compiled = torch.compile(model, options=cutlass_fused.inductor_options())

    The pass looks at each graph, forward and backward, for products (`mm`, `addmm`, with what views
    F.linear of more dimensions adds) and for what is computed of them element by element, or along
    their rows: biases, scales, residuals, activations and their gradients, batch norm in inference,
    softmax, layer and RMS norm. It makes one call of `torch.ops.cutlass_fused.linear_epilogue` of
    both, where that is expected to take no longer. Other fp32 products become calls of our ops, as
    under `cutlass_fused.fp32_matmul`. The rest is Inductor's. On a CPU nothing is changed.

    Args:
        options: others, which the result has too. A pass of the user's in the same place,
            `post_grad_custom_pre_pass`, there or in Inductor's settings, runs first.
        mode: of torch.compile, which takes no options beside one: "reduce-overhead",
            "max-autotune" and so on.
        precision: of fp32 products: "ieee", "tf32", or None. None is the word of
            `cutlass_fused.fp32_matmul` where that is on, else PyTorch's own setting, when a graph
            is compiled.

    Returns:
        for `options` of torch.compile, for `inductor_configs` of
        torch._inductor.aoti_compile_and_package.

    Numerics: those of cutlass_fused.functional.linear_epilogue: sums and what follows in fp32, each
    result rounded once. Values of 16 bits in between are not rounded, as Inductor's are not.

    Raises:
        ValueError: an unknown precision.
        RuntimeError: an unknown mode.
    """
    check_precision(precision, "inductor_options")
    # Not above: they import Inductor.
    from torch._inductor import config

    from ._pass import EpiloguePass

    made = _list_options(mode) | {
        name.replace("-", "_"): value for name, value in (options or {}).items()
    }
    users = made.get(_SETTING, getattr(config, _SETTING))
    users = find_users(users)
    return made | {_SETTING: EpiloguePass(precision, users)}


def find_users(found):
    """The user's pass, where the settings hold one of ours."""
    from .._pass import Pass
    from ._pass import EpiloguePass

    while isinstance(found, (EpiloguePass, Pass)):
        found = found.users
    return found


def _list_options(mode: str | None) -> dict[str, Any]:
    if mode is None or mode == "default":
        return {}
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode))
