"""Functions that add and compare along rows behind products, beside PyTorch's own ops."""

import math

import pytest
import torch
import torch.nn.functional as F
import traced
from accuracy import matmul_settings
from judge_epilogues import PRECISIONS, assert_as_good
from printed_programs import join_lines, write_number
from row_cases import ROW_CASES, find_row_program

from cutlass_fused import functional
from cutlass_fused.programs.epilogue import epilogue
from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import run_whole
from cutlass_fused.programs.recorded import NOTHING
from cutlass_fused.programs.traced import TracedFunction

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
# M, N, K. One row; a part of a warp; several warps; blocks whose pieces are not whole; the most
# threads; and more than registers hold.
SHAPES = (
    (1, 16, 96),
    (37, 48, 96),
    (1000, 1008, 64),
    (37, 8192, 64),
    (5, 20000, 64),
    (3, 98304, 8),
    (131, 768, 64),  # several warps of several rows, and pieces that groups of 96 and 192 have
)
# Of functions that take any N: rows of no whole words, and of one column.
ODD_SHAPES = ((37, 1, 96), (37, 40, 96), (130, 1001, 64), (3, 20001, 64))
OF_ANY = (
    *(
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "log_sum_exp",
        "softmax",
        "log_softmax",
        "softmin",
    ),
    *("layer_norm", "residual_norm", "rms_norm", "chain", "normalize", "three"),
)
# Sums of numbers of about 1 whose result is 0.
CANCELLED = ("group_norm_mean",)
# What a rounding of the product decides: which of two elements is the largest.
JUMPS = (
    *("amax", "amin", "max", "min", "max_of_groups"),
    *("stages", "window_maximum", "adaptive_maximum"),
)


def make_runs(name, precision):
    case = ROW_CASES[name]
    made = epilogue(case.function)

    def ours(x, weight, *operands):
        options = {"precision": precision} if precision in ("ieee", "tf32") else {}
        return made(x, weight, **dict(zip(case.operands, operands, strict=True)), **options)

    def eager(x, weight, *operands):
        return case.function(x @ weight.t(), **dict(zip(case.operands, operands, strict=True)))

    def behind(x, weight, *operands):
        options = {"precision": precision} if precision in ("ieee", "tf32") else {}
        z = functional.linear(x, weight, **options)
        return case.function(z, **dict(zip(case.operands, operands, strict=True)))

    return ours, eager, behind


def run(function, tensors, with_gradients):
    results = function(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    grads = [None] * len(tensors)
    if with_gradients:
        given = [
            torch.linspace(-1, 1, y.numel(), device=y.device).view_as(y).to(y) for y in results
        ]
        grads = torch.autograd.grad(results, tensors, given, allow_unused=True)
    return [each.detach() for each in results], grads


def choose_worse(others, truth):
    if truth is None or None in others:
        return others[0]
    return max(others, key=lambda each: (each.double() - truth).norm().nan_to_num())


def find_terms(tensors):
    """Of the gradients of group_norm_mean, which are sums of rows that cancel: what is added."""
    x, weight, bias = (each.detach().double() for each in tensors)
    z = x @ weight.t() + bias
    given = torch.linspace(-1, 1, len(z), device=z.device, dtype=z.dtype)[:, None]
    deviation = z.view(len(z), 4, -1).std(-1, correction=0, keepdim=True)
    of_z = (given.abs()[..., None] / z.shape[1] / deviation).expand(len(z), 4, z.shape[1] // 4)
    of_z = of_z.reshape(z.shape)
    return of_z @ weight.abs(), of_z.t() @ x.abs(), of_z.sum(0)


def judge(name, shape, precision, with_gradients):
    ours, eager, behind = make_runs(name, precision)
    tensors = traced.make_leaves(ROW_CASES[name], shape, PRECISIONS[precision])
    found, grads = run(ours, tensors, with_gradients)
    with matmul_settings("tf32" if precision == "tf32" else "ieee"):
        of_eager, eager_grads = run(eager, tensors, with_gradients)
    behind_grads = run(behind, tensors, with_gradients)[1]
    wide = [each.detach().double().requires_grad_() for each in tensors]
    truth, true_grads = run(eager, wide, with_gradients)
    for parts in zip(found, of_eager, truth, strict=True):
        assert parts[0].shape == parts[1].shape and parts[0].dtype == parts[1].dtype
        magnitude = torch.ones_like(parts[2]) if name in CANCELLED else None
        assert_as_good(*parts, "result", magnitude)
    for i, parts in enumerate(zip(grads, eager_grads, behind_grads, true_grads, strict=True)):
        found, *others, truth = parts
        # Sums of terms that cancel, as of a normalized row, are judged by the terms. Sums on tensor
        # cores are rounded towards zero, which a sum over rows adds up: by the same product.
        magnitude = None if truth is None else truth.abs().amax().expand_as(truth)
        if name in CANCELLED and truth is not None:
            magnitude = find_terms(tensors)[i]
        worse = choose_worse(others, truth)
        assert_as_good(found, worse, truth, f"gradient {i}", magnitude)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROW_CASES)
def test_kernel(name, shape):
    """The kernel alone, on numbers in memory, by the program in float64."""
    m, n, _ = shape
    case, program = ROW_CASES[name], find_row_program(name, n).program
    acc, *operands = (each.cuda() for each in traced.make_tensors(case, torch.float32, (m, n)))
    found = ops.apply_program(acc, operands, program.text)
    truth = run_whole(program, acc.double(), [each.double() for each in operands])
    plain = run_whole(program, acc, operands)
    for parts in zip(found, plain, truth, strict=True):
        terms = torch.ones_like(parts[2]) if name in CANCELLED else None
        assert_as_good(*parts, name, terms)
    again = ops.apply_program(acc, operands, program.text)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


WIDTHS = (1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 96, 128, 192, 384, 1536, 3072)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_widths(width, dtype):
    """Groups within a piece, a warp and a block: whole numbers, to the bit."""
    columns = 3200 if width == 5 else 3072
    lines = [f"v{i} = {word} acc {float(width).hex()}\n" for i, word in enumerate(
        ("row_sum", "row_max", "row_min")
    )]  # fmt: skip
    returned = "return " + " ".join(f"v{i}" + (f":{width}" if width > 1 else "") for i in range(3))
    text = f"program 1\noperands 0\ncolumns {columns}\n{''.join(lines)}{returned} v0\n"
    x = torch.randint(-9, 9, (67, columns), device="cuda").to(dtype)
    x[3, columns // 3] = math.nan
    x[4, 0] = math.inf
    found = ops.apply_program(x, [], text, "float32")
    for one, other in zip(found, run_whole(parse(text), x.float(), []), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("width", WIDTHS)
def test_places(width):
    """The first and the last of a group that are true, of many, of one and of none."""
    columns = 3200 if width == 5 else 3072
    one, zero = float(width).hex(), write_number(0)
    lines = [f"eq acc {zero}", f"row_first v0 {one}", f"row_last v0 {one}", "float v1", "float v2"]
    text = join_lines(lines, 0, ["v3", "v4", f"v4:{width}"])
    text = text.replace("operands 0\n", f"operands 0\ncolumns {columns}\n")
    x = torch.randint(0, max(width // 2, 2), (67, columns), device="cuda").float()
    x[3], x[4] = 1.0, 0.0
    found = ops.apply_program(x, [], text)
    for one, other in zip(found, run_whole(parse(text), x, []), strict=True):
        assert torch.equal(one, other)


MAXIMA = {
    "max": lambda acc: acc.max(dim=1).values,
    "min": lambda acc: acc.unflatten(1, (4, -1)).min(dim=2).values,
    "window_maximum": lambda acc: F.max_pool1d(acc, 2),
    "adaptive_maximum": lambda acc: F.adaptive_max_pool1d(acc, 4),
}


@pytest.mark.parametrize("columns", [16, 768, 8192, 40000])
@pytest.mark.parametrize("name", MAXIMA)
def test_gradients_of_equal_elements(name, columns):
    """As PyTorch's: to the first of equal elements, or where NaN has been taken."""
    function = MAXIMA[name]
    gradient = TracedFunction(name, function).find_gradient((), (True,), n=columns)
    acc = torch.randint(-3, 4, (64, columns), device="cuda").float()
    acc[1, [2, 3, columns // 2]], acc[2], acc[3, 5:7] = math.nan, math.nan, math.inf
    acc[4], acc[5] = -math.inf, 0.0
    y = function(acc.requires_grad_())
    grad = torch.rand_like(y) + 0.5
    (expected,) = torch.autograd.grad(y, acc, grad)
    groups = 1 if grad.dim() == 1 else grad.shape[1]
    spread = grad.view(64, groups).repeat_interleave(columns // groups, 1)
    assert gradient.first == NOTHING and gradient.operands == (0,)
    (found,) = ops.apply_program(acc.detach(), [spread], gradient.program.text)
    assert torch.equal(found, expected) and expected.count_nonzero() == grad.numel()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ROW_CASES)
def test_values(name, precision):
    for shape in SHAPES[:5]:
        judge(name, shape, precision, False)
    if name in OF_ANY:
        for shape in ODD_SHAPES:
            judge(name, shape, precision, False)


@pytest.mark.parametrize("precision", ["ieee", "bf16"])
@pytest.mark.parametrize("name", [name for name in ROW_CASES if name not in JUMPS])
def test_gradients(name, precision):
    for shape in SHAPES[1:4]:
        judge(name, shape, precision, True)


@pytest.mark.parametrize("name", JUMPS)
def test_gradients_of_jumps(name):
    """Of products that are exact, so that nothing decides between two elements."""
    ours, eager, _ = make_runs(name, "ieee")
    case = ROW_CASES[name]
    tensors = traced.make_leaves(case, SHAPES[2], torch.float32)
    with torch.no_grad():
        for each in tensors[:2]:
            each.copy_(torch.randint(-3, 4, each.shape))
    for one, other in zip(run(ours, tensors, True)[1], run(eager, tensors, True)[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("columns", [48, 1008, 8192])
@pytest.mark.parametrize("name", ["amax", "amin", "log_sum_exp", "softmax", "log_softmax", "sum"])
def test_special_values(name, columns):
    case, program = ROW_CASES[name], find_row_program(name, columns).program
    acc = torch.randn(12, columns)
    inf, nan = math.inf, math.nan
    rows = ([inf], [-inf], [nan], [inf, -inf], [inf, nan], [inf] * columns, [-inf] * columns)
    for row, values in enumerate(rows):
        acc[row, : len(values)] = torch.tensor(values)
    acc[7, -1] = nan
    tensors = [each.cuda() for each in traced.make_tensors(case, torch.float32, acc.shape, acc)]
    for found, each in zip(
        ops.apply_program(tensors[0], tensors[1:], program.text),
        traced.call(case, tensors),
        strict=True,
    ):
        close = {"rtol": 1e-5, "atol": 1e-5, "equal_nan": True}
        torch.testing.assert_close(found.view_as(each), each, **close)


@pytest.mark.parametrize("columns", [48, 1001, 20001, 98304])
@pytest.mark.parametrize("name", ["amax", "log_sum_exp", "softmax", "log_softmax"])
def test_rows_below_zero(name, columns):
    """What stands for elements that a row has not is no maximum of it."""
    case, program = ROW_CASES[name], find_row_program(name, columns).program
    acc = -1e4 - torch.rand(5, columns)
    tensors = [each.cuda() for each in traced.make_tensors(case, torch.float32, acc.shape, acc)]
    tensors[1:] = [torch.ones_like(each) for each in tensors[1:]]
    (found,) = ops.apply_program(tensors[0], tensors[1:], program.text)
    (each,) = traced.call(case, tensors)
    torch.testing.assert_close(found.view_as(each), each, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["log_sum_exp", "softmax", "group_norm"])
def test_second_derivatives(name):
    ours, eager, _ = make_runs(name, "ieee")

    def force(function, tensors):
        (first,) = torch.autograd.grad(function(*tensors).sum(), tensors[0], create_graph=True)
        return torch.autograd.grad(first.square().sum(), tensors[:2])

    tensors = traced.make_leaves(ROW_CASES[name], SHAPES[1], torch.float32)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    for parts in zip(force(ours, tensors), force(eager, tensors), force(eager, wide), strict=True):
        magnitude = parts[2].abs().amax().expand_as(parts[2])
        assert_as_good(*parts, "second derivative", magnitude)


@pytest.mark.parametrize("name", ["log_sum_exp", "layer_norm", "three"])
def test_captured(name):
    """A step, forward and backward, behind a first one."""
    ours, *_ = make_runs(name, "ieee")
    tensors = traced.make_leaves(ROW_CASES[name], (128, 1008, 64), torch.float32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(ours, tensors, True)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, grads = run(ours, tensors, True)
    with torch.no_grad():
        tensors[0].normal_()
    graph.replay()
    expected, expected_grads = run(ours, tensors, True)
    for one, other in zip((*found, *grads), (*expected, *expected_grads), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled(mode):
    torch._dynamo.reset()
    ours, *_ = make_runs("softmax", "ieee")
    tensors = traced.make_leaves(ROW_CASES["softmax"], (128, 1008, 64), torch.float32)
    expected = ours(*tensors).detach()
    compiled = torch.compile(ours, fullgraph=True, mode=mode)
    for _ in range(3):  # the third is a replay
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(*tensors).detach(), expected)


def test_strided_rows_and_leading_dimensions():
    x = torch.randn(2, 3, 64, device="cuda")
    weight = torch.randn(48, 128, device="cuda")[:, :64]
    residual = torch.randn(2, 3, 96, device="cuda")[..., 1:49]
    made = epilogue(lambda acc, r: ((acc + r).softmax(1), (acc + r).logsumexp(1)))
    y, z = made(x, weight, r=residual, precision="ieee")
    assert y.shape == (2, 3, 48) and z.shape == (2, 3)
    expected = (x.double() @ weight.double().t() + residual.double()).float()
    torch.testing.assert_close(y, expected.softmax(-1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(z, expected.logsumexp(-1), rtol=1e-4, atol=1e-5)


def test_other_columns_are_refused():
    program = find_row_program("softmax", 48).program
    acc, bias = torch.randn(4, 64, device="cuda"), torch.randn(64, device="cuda")
    with pytest.raises(RuntimeError, match="N must be 48, as the program says, got 64"):
        ops.apply_program(acc, [bias], program.text)
