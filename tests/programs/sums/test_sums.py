"""Sums over the rows among the results of apply_program: what is asked for, and what is refused."""

import re

import pytest
import torch

from cutlass_fused import _library
from cutlass_fused.programs.operands import ROW, SCALAR, TILE
from cutlass_fused.programs.recorded import COPY, make_derivative
from cutlass_fused.programs.traced import TracedFunction

ops = torch.ops.cutlass_fused
CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
M, N = 6, 5
TEXT = "program 1\noperands 1\nv0 = mul acc p0\nv1 = add v0 acc\nreturn v1 v1 v0\n"
OF_ROWS = "program 1\noperands 1\ncolumns 5\nv0 = row_sum acc 0x1.4p+2\nreturn v0 acc p0\n"
OUT = "bfloat16,sum:float32,sum:bfloat16"


def make(leading=(M,), dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(*leading, N).to(dtype), [torch.randn(N)]


@pytest.mark.parametrize("leading", [(), (1,), (0,), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values(leading, dtype):
    """Of what is not rounded yet; of no rows they are zeros."""
    acc, operands = make(leading, dtype)
    torch.library.opcheck(ops.apply_program.default, (acc, operands, TEXT, OUT))
    tile, *sums = ops.apply_program(acc, operands, TEXT, OUT)
    scaled = acc.float() * operands[0]
    terms = [(scaled + acc).reshape(-1, N), scaled.reshape(-1, N)]
    assert tile.shape == acc.shape and tile.dtype == torch.bfloat16
    for each, of, expected in zip(sums, terms, (torch.float32, torch.bfloat16), strict=True):
        assert each.shape == (N,) and each.dtype == expected and each.is_contiguous()
        torch.testing.assert_close(each, of.sum(0).to(expected))


def test_one_word_for_all():
    acc, operands = make(dtype=torch.float64)
    for each in ops.apply_program(acc, operands, TEXT, "sum:float64"):
        assert each.shape == (N,) and each.dtype == torch.float64


@pytest.mark.parametrize(
    "text, out, message",
    [
        (TEXT, "sum:int8", "out must name float16, bfloat16 or float32, or one of them behind sum"),
        (TEXT, "sum:", "out must name float16"),
        (TEXT, "sum", "out must name float16"),
        (TEXT, "sum:sum:float32", "out must name float16"),
        (TEXT, "float32:sum", "out must name float16"),
        (TEXT, "float32,sum:float32", "out must name one dtype or 3, got float32,sum:float32"),
        (OF_ROWS, "float32,float32,sum:float32", "out must name no sum of a program that adds"),
    ],
)
def test_refused_by_both(text, out, message):
    acc, operands = make()
    with pytest.raises(RuntimeError, match=f"apply_program: {message}") as ours:
        ops.apply_program(acc, operands, text, out)
    if not _library.is_loaded():
        pytest.skip(_library.load_error())
    with pytest.raises(RuntimeError, match=re.escape(str(ours.value).splitlines()[0])):
        ops.apply_program.default.redispatch(CUDA, acc, operands, text, out)


def test_products_have_none():
    acc, operands = make()
    given = acc, torch.randn(N, N), operands, TEXT, "ieee", "sum:float32"
    for call in (ops.linear_epilogue, lambda *given: ops.run_program(acc, operands, TEXT, "sum:8")):
        with pytest.raises(RuntimeError, match="out must name float16"):
            call(*given)


def derive(function, kinds, inputs, needed=None, results=1):
    """The Derivative of a function of acc and of operands of these kinds."""
    needed = (True,) * (1 + len(kinds)) if needed is None else needed
    names = function.__code__.co_varnames[1 : 1 + len(kinds)]
    key = tuple(zip(names, kinds, strict=True))
    gradient = TracedFunction("function", function).find_gradient(key, needed)
    of_results = ((TILE, 2),) * results
    return make_derivative(gradient, needed, kinds, of_results, "float32", inputs)


def gelu(acc, bias):
    return torch.nn.functional.gelu(acc + bias)


BIAS = ((ROW, 1),)


def test_bias_of_16_bits():
    """Its gradient is that of acc, once as a tile and once as a sum, both rounded once."""
    found = derive(gelu, BIAS, ("bfloat16",) * 2)
    assert found.out == "bfloat16,sum:bfloat16" and found.places == (0, 1)
    one, other = found.text.splitlines()[-1].split()[1:]
    assert one == other


@pytest.mark.parametrize(
    "inputs, needed, out, places",
    [
        (("bfloat16", "float32"), (True, True), "bfloat16,sum:float32", (0, 1)),
        (("float32", "bfloat16"), (True, True), "float32,sum:bfloat16", (0, 1)),
        (("bfloat16",) * 2, (False, True), "sum:bfloat16", (-1, 0)),
        (("bfloat16",) * 2, (True, False), "bfloat16", (0, -1)),
    ],
)
def test_dtypes(inputs, needed, out, places):
    found = derive(gelu, BIAS, inputs, needed)
    assert (found.out, found.places) == (out, places)


def test_scalars_are_added_up_in_fp32():
    def scaled(acc, scale, shift, bias):
        return acc.sin() * scale + shift + bias

    kinds = (SCALAR, 0), (ROW, 1), (ROW, 2)
    found = derive(scaled, kinds, ("bfloat16",) * 4)
    assert found.out == "bfloat16,sum:float32,sum:bfloat16"
    assert found.places == (0, 1, 2, 2)


def test_copies_are_none():
    """The gradient of a sum is there already: PyTorch adds it up."""
    found = derive(lambda acc, bias: acc + bias, BIAS, ("bfloat16",) * 2)
    assert (found.text, found.out, found.places) == (COPY, "bfloat16", (0, 0))


def test_too_many_outputs():
    """Five gradients, each that of a row and of a tile: there is no room for sums beside tiles."""

    def many(acc, *operands):
        for row, tile in zip(operands[::2], operands[1::2], strict=True):
            acc = (acc + row + tile).sin()
        return acc

    def function(acc, a, b, c, d, e, f, g, h, i, j):
        return many(acc, a, b, c, d, e, f, g, h, i, j)

    kinds, inputs = ((ROW, 1), (TILE, 2)) * 5, ("float32",) * 11
    found = derive(function, kinds, inputs, (False,) + (True,) * 10)
    assert found.out == ",".join(["float32"] * 5)
    found = derive(function, kinds, inputs, (False,) + (True,) * 8 + (False,) * 2)
    assert found.out == ",".join(["float32,sum:float32"] * 4)
