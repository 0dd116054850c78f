"""The ops of programs: on the CPU, as fakes, and what both their kernels refuse."""

import re

import pytest
import torch
import traced
from program_cases import CASES
from program_texts import MALFORMED

from cutlass_fused import _library
from cutlass_fused.programs.epilogue import epilogue
from cutlass_fused.programs.program import run

ops = torch.ops.cutlass_fused
M, N, K = 6, 5, 8
GATED = traced.find_program("geglu", CASES["geglu"]).text  # a row and a tile
CUDA = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)


def make(dtype=torch.float32, leading=(M,)):
    torch.manual_seed(6)
    shapes = ((*leading, K), (N, K), (N,), (*leading, N))
    return [torch.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_opcheck(name):
    case = CASES[name]
    program = traced.find_program(name, case)
    acc, *operands = traced.make_tensors(case, torch.float32, (M, N))
    torch.library.opcheck(ops.apply_program.default, (acc, operands, program.text))
    x, weight, *_ = make()
    torch.library.opcheck(ops.linear_epilogue.default, (x, weight, operands, program.text))
    found = ops.apply_program(acc, operands, program.text)
    for one, other in zip(found, run(program, acc, operands), strict=True):
        torch.testing.assert_close(one, other.expand(M, N))
    product = x @ weight.t()
    for one, other in zip(
        ops.linear_epilogue(x, weight, operands, program.text),
        ops.apply_program(product, operands, program.text),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("leading", [(), (1,), (0,), (2, 3), (2, 0, 3)])
def test_shapes(leading):
    x, weight, bias, up = make(leading=leading)
    (y,) = ops.linear_epilogue(x, weight, [bias, up], GATED)
    assert y.shape == (*leading, N) and y.is_contiguous()
    torch.library.opcheck(ops.linear_epilogue.default, (x, weight, [bias, up], GATED))


def test_dtypes_of_results():
    acc, *operands = traced.make_tensors(CASES["pre_activation"], torch.float32, (M, N))
    text = traced.find_program("pre_activation", CASES["pre_activation"]).text
    exact = ops.apply_program(acc, operands, text)
    for out, dtypes in (
        ("bfloat16", [torch.bfloat16] * 2),
        ("float16,float32", [torch.float16, torch.float32]),
        (None, [torch.float32] * 2),
    ):
        found = ops.apply_program(acc, operands, text, out)
        assert [each.dtype for each in found] == dtypes
        for one, other in zip(found, exact, strict=True):
            assert torch.equal(one, other.to(one.dtype))
    narrow = ops.apply_program(acc.bfloat16(), operands, text)
    assert [each.dtype for each in narrow] == [torch.bfloat16] * 2
    wide = ops.apply_program(acc.double(), operands, text, "float64,float32")
    assert [each.dtype for each in wide] == [torch.float64, torch.float32]


def test_results_are_new():
    """Also where they are what was given."""
    acc, operand = torch.randn(M, N), torch.randn(M, N)
    before = acc.clone(), operand.clone()
    found = ops.apply_program(acc, [operand], "program 1\noperands 1\nreturn acc p0 acc 0x1.0p+0\n")
    for each in found:
        each.zero_()
    assert torch.equal(acc, before[0]) and torch.equal(operand, before[1])


def test_autocast_does_not_reach_it():
    x, weight, bias, up = make()
    with torch.autocast("cpu"):
        (y,) = ops.linear_epilogue(x, weight, [bias, up], GATED)
    assert y.dtype == torch.float32


def make_bad():
    x, weight, bias, up = make()
    rest = [bias, up]
    return {
        "x of integers": ((x.int(), weight, rest, GATED), "x must be"),
        "x of another K": ((x[:, :-1], weight, rest, GATED), "x must have 8 columns"),
        "too few operands": (
            (x, weight, [bias], GATED),
            "there must be 2 operands, as the program says, got 1",
        ),
        "too many": ((x, weight, [*rest, up], GATED), "there must be 2 operands, .* got 3"),
        "no program": ((x, weight, rest, "gelu"), "program: "),
        "another precision": ((x, weight, rest, GATED, "fp8"), "precision must be"),
        "out": ((x, weight, rest, GATED, "ieee", "int8"), "out must name float16, .*, got int8"),
        "outs": (
            (x, weight, rest, GATED, "ieee", "float32,float32"),
            "out must name one dtype or 1, got float32,float32",
        ),
        "empty out": ((x, weight, rest, GATED, "ieee", ""), "out must name float16"),
        "operand of integers": (
            (x, weight, [bias.int(), up], GATED),
            r"operands\[0\] must be float16, .* got int32",
        ),
        "operand of another N": (
            (x, weight, [bias[:-1], up], GATED),
            r"operands\[0\] must have shape \(\), \(5,\), \(6, 1\) or \(6, 5\), got \(4,\)",
        ),
        "rows as a vector": (
            (x, weight, [x[:, 0], up], GATED),
            r"operands\[0\] must have shape \(\), \(5,\), \(6, 1\) or \(6, 5\), got \(6,\)",
        ),
        "three dimensions": (
            (x, weight, [bias, up[None]], GATED),
            r"operands\[1\] must have shape .* got \(1, 6, 5\)",
        ),
    }


@pytest.mark.parametrize("name", make_bad())
def test_refused_by_both(name):
    """The CPU's kernel and the GPU's, which checks before it looks for a GPU, in the same words."""
    arguments, message = make_bad()[name]
    with pytest.raises(RuntimeError, match=f"linear_epilogue: {message}"):
        ops.linear_epilogue(*arguments)
    if not _library.is_loaded():
        pytest.skip(_library.load_error())
    with pytest.raises(RuntimeError, match=f"linear_epilogue: {message}"):
        ops.linear_epilogue.default.redispatch(CUDA, *arguments)


@pytest.mark.parametrize("index", range(0, len(MALFORMED), 7))
def test_malformed_programs(index):
    text = MALFORMED[index][0]
    if len(text) > 100_000:
        pytest.skip("as the shorter ones")
    with pytest.raises(RuntimeError, match="apply_program: program: "):
        ops.apply_program(torch.randn(M, N), [], text)
    if _library.is_loaded():
        with pytest.raises(RuntimeError, match=re.escape(f"program: {MALFORMED[index][1]}"[:60])):
            ops.apply_program.default.redispatch(CUDA, torch.randn(M, N), [], text)


def test_scalars_of_another_device_are_refused_by_fakes():
    """As the kernels refuse them; an Epilogue moves them."""
    x, weight, bias, up = (each.to("meta") for each in make())
    with pytest.raises(RuntimeError, match=r"operands\[0\] must be on the device of x, meta"):
        ops.linear_epilogue(x, weight, [torch.tensor(2.0), up], GATED)
    made = epilogue(lambda acc, scale, up: acc * scale + up)
    assert made(x, weight, scale=torch.tensor(2.0), up=up).is_meta


def test_other_layouts_are_refused():
    x, weight, bias, up = make()
    with pytest.raises(RuntimeError, match="linear_epilogue: x must be a dense tensor"):
        ops.linear_epilogue(x.to_sparse(), weight, [bias, up], GATED)
    with pytest.raises(RuntimeError, match=r"operands\[1\] must be a dense tensor"):
        ops.linear_epilogue(x, weight, [bias, up.to_sparse()], GATED)
