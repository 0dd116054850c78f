"""What calls of an epilogue run, without running it, and the kernels of that."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from .._library import ops
from ..programs import differentiable
from ..programs.epilogue import Epilogue
from ..programs.operands import find_kind

# By the names that benchmarks have: the dtype of x and weight, and `precision`.
PRECISIONS = {
    "ieee": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
    "fp16": (torch.float16, "ieee"),
}
# What stands for M, N and K of any size: no two are equal.
_ANY_SIZES = (1024, 512, 256)
SHAPES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "N": lambda m, n: (n,),
    "M": lambda m, n: (m, 1),
    "MN": lambda m, n: (m, n),
    "scalar": lambda m, n: (),
}


class Operand(NamedTuple):
    """A tensor, by a word of SHAPES, of a dtype or of that of x."""

    kind: str
    dtype: torch.dtype | None


class Call(NamedTuple):
    """Of linear_epilogue, or of apply_program, which has no precision."""

    text: str
    operands: tuple[str, ...]
    dtype: str
    precision: str | None
    out: str


class Recorder(TorchDispatchMode):
    """The calls of both ops."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __enter__(self):
        differentiable.is_recorded = True
        return super().__enter__()

    def __exit__(self, *error):
        differentiable.is_recorded = False
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function is ops.linear_epilogue.default:
            x, weight, operands, text, precision, out, *_ = arguments
            self._record(x, weight.shape[0], operands, text, precision, out)
        elif function is ops.apply_program.default:
            acc, operands, text, out, *_ = arguments
            self._record(acc, acc.shape[-1], operands, text, None, out)
        return function(*arguments, **(options or {}))

    def _record(self, rows, n: int, operands, text: str, precision: str | None, out: str) -> None:
        kinds = (find_kind("", "", each, rows, n) for each in operands)
        words = (f"{_name(each.dtype)}:{kind}" for each, kind in zip(operands, kinds, strict=True))
        self.calls.append(Call(text, tuple(words), _name(rows.dtype), precision, out))


def record_calls(
    epilogue: Epilogue,
    operands: dict[str, Operand | float | None],
    precision: str,
    sizes: tuple[int, int, int] | None = None,
    gradients: Sequence[str] | None = None,
    out_dtype: torch.dtype | None = None,
) -> list[Call]:
    """What a call of the epilogue runs, and its backward pass: `gradients` names the operands that
    have one beside x and weight; None is inference."""
    (m, n, k), (dtype, word) = sizes or _ANY_SIZES, PRECISIONS[precision]
    is_trained = gradients is not None
    with FakeTensorMode(), Recorder() as recorder, torch.set_grad_enabled(is_trained):
        x, weight = (torch.empty(rows, k, dtype=dtype, requires_grad=is_trained) for rows in (m, n))
        given = {
            name: torch.empty(
                SHAPES[each.kind](m, n),
                dtype=each.dtype or dtype,
                requires_grad=is_trained and name in gradients,
            )
            if isinstance(each, Operand)
            else each
            for name, each in operands.items()
        }
        y = epilogue(x, weight, precision=word, out_dtype=out_dtype, **given)
        results = [each for each in (y if isinstance(y, tuple) else (y,)) if each.requires_grad]
        if results:
            torch.autograd.backward(results, [torch.empty_like(each) for each in results])
    if sizes is None and any("\ncolumns " in call.text for call in recorder.calls):
        raise RuntimeError(
            f"{epilogue.name}: --shape must be given: it adds or compares along rows"
        )
    return list(dict.fromkeys(recorder.calls))


def link(call: Call, capability: int, sizes: tuple[int, int, int] | None = None) -> list[str]:
    """Of each kernel "new NAME", "kept NAME", or "refused NAME: why" and "failed NAME: why", where
    it cannot be linked or not be written."""
    m, n, k = sizes or (0, 0, 0)
    if call.precision is None:
        return ops.link_pointwise(call.text, call.operands, call.dtype, call.out, capability, m, n)
    within = ops.link_epilogue(
        *(call.text, call.operands, call.dtype, call.precision, call.out, capability, m, n, k)
    )
    # What runs behind a product by cuBLAS, or of matrices that no tile reads.
    behind = ops.link_pointwise(call.text, call.operands, "float32", call.out, capability, m, n)
    return within + behind


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
