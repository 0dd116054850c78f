"""Sums over the rows among the results of a program on elements, as gradients of biases are."""

import pytest
import torch

import cutlass_fused
from cutlass_fused import functional

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = (1, 7, 65, 300, 4099, 131072)  # one block's, few, strips of several blocks, long ones
# One column, columns of one element a piece, of four, of eight, and strips with a part left over.
COLUMNS = (1, 7, 68, 513, 520, 2048)
# A row, a column and a scalar; a tile, and sums of it and of others.
COPY = "program 1\noperands 0\nreturn acc\n"
TEXT = "program 1\noperands 3\nv0 = mul acc p0\nv1 = add v0 p1\nv2 = mul v1 p2\n"
TEXT += "return v2 v2 v0 acc\n"


def find_name(dtype):
    return str(dtype).removeprefix("torch.")


def make(m, n, dtype, mean=0.0):
    generator = torch.Generator("cuda").manual_seed(m + n)

    def draw(*shape):
        return (torch.randn(shape, device="cuda", generator=generator) + mean).to(dtype)

    return draw(m, n), [draw(n), draw(m, 1), draw()]


def find_terms(acc, operands):
    """In float64; the tile first."""
    acc, (row, column, scalar) = acc.double(), (each.double() for each in operands)
    tile = (acc * row + column) * scalar
    return tile, tile, acc * row, acc


def find_sizes(acc, operands):
    """Of what is added up in each term."""
    return find_terms(acc.abs(), [each.abs() for each in operands])


def judge_sums(sums, terms, sizes):
    """Terms, which are rounded thrice at most, and partial sums are in fp32; the sum in its own
    dtype."""
    for found, each, size in zip(sums, terms, sizes, strict=True):
        truth = each.sum(0)
        rounding = torch.finfo(found.dtype).eps * truth.abs() + torch.finfo(found.dtype).tiny
        assert found.shape == truth.shape
        assert ((found.double() - truth).abs() <= 3 * 2.0**-23 * size.sum(0) + rounding).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rows", ROWS)
def test_values(rows, columns, dtype):
    if rows * columns > 1 << 27:
        pytest.skip("a hundred bytes for each element in float64")
    # Sums of many rows are beyond fp16.
    narrow = torch.float32 if dtype == torch.float16 and rows > 300 else dtype
    for mean, wide in ((0.0, torch.float32), (1.0, narrow)):
        acc, operands = make(rows, columns, dtype, mean)
        out = f"{find_name(dtype)},sum:{find_name(wide)},sum:{find_name(narrow)},sum:float32"
        y, *sums = ops.apply_program(acc, operands, TEXT, out)
        terms, sizes = find_terms(acc, operands), find_sizes(acc, operands)
        rounding = torch.finfo(dtype).eps * terms[0].abs() + torch.finfo(dtype).tiny
        assert ((y.double() - terms[0]).abs() <= 3 * 2.0**-23 * sizes[0] + rounding).all()
        judge_sums(sums, terms[1:], sizes[1:])
        again = ops.apply_program(acc, operands, TEXT, out)
        assert all(map(torch.equal, sums, again[1:]))


@pytest.mark.parametrize("rows, columns", [(4099, 520), (300, 513), (40, 8192)])
def test_sums_alone(rows, columns):
    """Without a tile, whose memory they do not take."""
    acc, operands = make(rows, columns, torch.bfloat16)
    text = TEXT.replace("return v2 v2 v0 acc", "return v2 v0")
    ops.apply_program(acc, operands, text, "sum:float32")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    sums = ops.apply_program(acc, operands, text, "sum:float32")
    if rows == 4099:
        assert torch.cuda.max_memory_allocated() - before < acc.nbytes // 2
    terms, sizes = find_terms(acc, operands), find_sizes(acc, operands)
    judge_sums(sums, terms[1:3], sizes[1:3])


def test_bits_of_each_call():
    """The same whichever block comes last: with the GPU empty, full, and shared with a stream."""
    acc, operands = make(4099, 1024, torch.bfloat16)
    out = "bfloat16,sum:float32,sum:bfloat16,sum:float32"
    expected = ops.apply_program(acc, operands, TEXT, out)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    found = []
    for _ in range(50):
        with torch.cuda.stream(stream):
            found.append(ops.apply_program(acc, operands, TEXT, out))
        found.append(ops.apply_program(acc, operands, TEXT, out))
    torch.cuda.synchronize()
    for each in found:
        assert all(map(torch.equal, each, expected))


def capture(acc, operands, out, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [ops.apply_program(acc, operands, TEXT, out) for _ in range(calls)]
    return graph, found


def test_captured():
    """Each graph counts for itself: two that were captured by one stream run side by side, and
    beside plain calls."""
    out = "bfloat16,sum:bfloat16,sum:float32,sum:float32"
    acc, operands = make(4099, 1024, torch.bfloat16)
    ops.apply_program(acc, operands, TEXT, out)
    graphs = [capture(acc, operands, out, 3) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(3):
        acc.normal_()
        expected = ops.apply_program(acc, operands, TEXT, out)
        torch.cuda.synchronize()
        for _ in range(20):
            for (graph, _), stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    graph.replay()
            plain = ops.apply_program(acc, operands, TEXT, out)
        torch.cuda.synchronize()
        for each in [plain, *(one for _, found in graphs for one in found)]:
            assert all(map(torch.equal, each, expected))


def test_captured_more_often_than_counters_are_kept():
    """Those behind them are cleared in each replay. Of as many strips as a call may have of those
    that are kept, each of two blocks."""
    acc = torch.randn(4200, 131_071, device="cuda", dtype=torch.bfloat16)
    expected = ops.apply_program(acc, [], COPY, "sum:float32")[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [ops.apply_program(acc, [], COPY, "sum:float32")[0] for _ in range(70)]
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(each, expected) for each in found)
        for each in found:
            each.zero_()


@pytest.mark.parametrize("rows", [1, 15, 128, 129, 255, 256, 257, 512, 1024, 1025])
@pytest.mark.parametrize("tiles", [1, 3])
def test_few_rows(rows, tiles):
    """About as many as one block takes, in strips of any width."""
    text = f"program 1\noperands {tiles - 1}\nreturn acc{' p0 p1' * (tiles == 3)}\n"
    for columns, dtype in ((8, torch.float32), (768, torch.bfloat16), (1001, torch.float16)):
        given = [make(rows, columns, dtype)[0] + i for i in range(tiles)]
        found = ops.apply_program(given[0], given[1:], text, ",".join(["sum:float32"] * tiles))
        wide = [each.double() for each in given]
        judge_sums(found, wide, [each.abs() for each in wide])


def test_more_strips_than_are_kept():
    """Of columns one by one, in strips of several blocks."""
    acc = torch.randn(4200, 131_075, device="cuda", dtype=torch.bfloat16)
    (found,) = ops.apply_program(acc, [], COPY, "sum:float32")
    for _ in range(2):
        (again,) = ops.apply_program(acc, [], COPY, "sum:float32")
        assert torch.equal(found, again)
    for begin in range(0, acc.shape[1], 16384):
        part = acc[:, begin : begin + 16384].double()
        judge_sums([found[begin : begin + 16384]], [part], [part.abs()])


@pytest.mark.parametrize("leading", [(0,), (3, 0, 2), (), (2, 3)])
def test_leading_dimensions(leading):
    acc, row = torch.randn(*leading, 9, device="cuda"), torch.randn(9, device="cuda")
    text = "program 1\noperands 1\nv0 = mul acc p0\nreturn v0 v0\n"
    y, found = ops.apply_program(acc, [row], text, "float32,sum:float32")
    assert y.shape == acc.shape
    torch.testing.assert_close(found, (acc * row).reshape(-1, 9).sum(0))


def test_layouts():
    acc, operands = make(600, 512, torch.bfloat16)
    out = "bfloat16,sum:float32,sum:float32,sum:float32"
    wide = torch.zeros(600, 600, device="cuda", dtype=torch.bfloat16)
    wide[:, 3:515] = acc
    row = acc[0].expand(600, 512)  # as the gradient of a sum is
    for each in (wide[:, 3:515], acc.t().contiguous().t(), row):
        terms, sizes = find_terms(each, operands), find_sizes(each, operands)
        found = ops.apply_program(each, operands, TEXT, out)
        judge_sums(found[1:], terms[1:], sizes[1:])


def test_asynchronous():
    """By PyTorch's ops until the kernel is there."""
    acc, operands = make(300, 264, torch.float32)
    text = TEXT.replace("mul v1 p2", "sub v1 p2")
    row, column, scalar = (each.double() for each in operands)
    expected = (acc.double() * row + column - scalar).sum(0)
    out = "float32,sum:float32,sum:float32,sum:float32"
    for _ in range(3):
        _, found, *_ = ops.apply_program(acc, operands, text, out, True)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)


@cutlass_fused.epilogue
def gated(acc, bias, scale, slope):
    z = acc + bias
    return torch.nn.functional.gelu(z) * scale + torch.tanh(z) * slope


def of_pytorch(x, weight, bias, scale, slope):
    z = torch.nn.functional.linear(x, weight) + bias
    return torch.nn.functional.gelu(z) * scale + torch.tanh(z) * slope


def find_errors(found, exact):
    return [((f.double() - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n, k", [(4096, 512, 64), (300, 129, 40), (7, 64, 64)])
def test_gradients(m, n, k, dtype):
    """At most twice eager's error, and roundings of the result, in two orders; compiled too."""
    torch.manual_seed(m)
    shapes = (m, k), (n, k), (n,), (n,), ()
    leaves = [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]
    with torch.no_grad():
        leaves[1].mul_(k**-0.5)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]

    def ours(x, weight, bias, scale, slope):
        return gated(x, weight, bias=bias, scale=scale, slope=slope)

    def differentiate(function, leaves):
        loss = function(*leaves).square().sum() / 64
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        if dtype == torch.float16:  # whose largest number is too small
            return first
        twice = sum(each.square().sum() for each in first) / 64
        return [*first, *torch.autograd.grad(twice, leaves)]

    truth = differentiate(of_pytorch, exact)
    of_eager = find_errors(differentiate(of_pytorch, leaves), truth)
    of_ours = find_errors(differentiate(ours, leaves), truth)
    torch._dynamo.reset()
    loss = torch.compile(ours)(*leaves).square().sum() / 64
    of_compiled = find_errors(torch.autograd.grad(loss, leaves), truth[:5])
    eps = torch.finfo(dtype).eps
    for errors in (of_ours, of_compiled):
        for error, eager in zip(errors, of_eager, strict=False):
            assert error <= 2 * eager + 4 * eps, (errors, of_eager)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_a_bias_is_rounded_once(dtype):
    """And its terms are not."""
    m, n, k = 32768, 256, 32
    torch.manual_seed(0)
    x, weight = (torch.randn(rows, k, device="cuda").to(dtype) for rows in (m, n))
    bias = torch.randn(n, device="cuda").to(dtype).requires_grad_()
    weight = (weight * 0.2).requires_grad_()
    y = functional.linear_epilogue(x, weight, "relu", bias=bias)
    grad = torch.rand_like(y)
    (found,) = torch.autograd.grad(y, bias, grad)
    terms = torch.where(y > 0, grad.double(), 0.0)
    eps = torch.finfo(dtype).eps
    assert ((found.double() - terms.sum(0)).abs() <= (eps / 2 + 2.0**-20) * terms.sum(0)).all()


def test_one_kernel():
    """The whole of a backward pass behind the products: no pass of PyTorch's reads grad_z again."""
    m, n, k = 512, 512, 256
    x, weight = (
        torch.randn(rows, k, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for rows in (m, n)
    )
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = functional.linear_epilogue(x, weight, "gelu", bias=bias)
    grad = torch.ones_like(y)
    torch.autograd.grad(y, [x, weight, bias], grad, retain_graph=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(y, [x, weight, bias], grad)
        torch.cuda.synchronize()
    names = [each.key for each in profile.key_averages()]
    assert sum("cutlass_fused_pointwise" in name for name in names) == 1, names
    assert not any("at::native::reduce_kernel" in name for name in names), names
