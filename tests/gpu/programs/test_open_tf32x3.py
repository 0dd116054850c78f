"""Programs within small fp32 products as they lie: kernels of tf32x3 that are made on first use."""

import pytest
import torch
from accuracy import round_to_tf32
from program_texts import make_program
from tiles import force_tile

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
TILES = ("32x32x64w4", "32x64x64w2", "64x64x32", "64x64x64")
# M, N, K: one row, ragged tiles, columns that are no whole pieces, K in shares, many tiles.
SHAPES = (
    *((1, 64, 64), (33, 72, 96), (70, 37, 132), (5, 130, 36), (16, 512, 512), (1, 1024, 1024)),
    *((300, 128, 128), (4096, 128, 64)),
)
# relu(acc + row) * tile + column * number, and acc + row.
TEXT = make_program(
    *("v0 = add acc p0", "v1 = relu v0", "v2 = mul v1 p1", "v3 = mul p2 p3"),
    *("v4 = add v2 v3", "return v4 v0"),
    operands=4,
)


@pytest.fixture(autouse=True)
def needs_hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("open kernels of tf32x3 are those of 9.0")


def make_tensors(shape, seed=0):
    m, n, k = shape
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*sizes):
        return torch.randn(sizes, device="cuda", generator=generator)

    operands = [normal(n), normal(m, n).bfloat16(), normal(m, 1), normal()]
    return normal(m, k), normal(n, k), operands


def run(x, weight, operands, precision, out="float32,float32"):
    return ops.linear_epilogue(x, weight, operands, TEXT, precision, out)


def compute(acc, row, tile, column, number):
    shifted = acc + row
    return shifted.relu() * tile + column * number, shifted


def count_kernels(call):
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return [event.name for event in profile.events() if event.device_type.name == "CUDA"]


def is_within(names):
    return len(names) == 1 and names[0].startswith("cutlass_fused_open_tf32")


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("tile", TILES)
def test_the_program_of_the_same_sums(tile, shape, precision):
    """Bit by bit what the program gives of the product by the same tile, behind it: also where
    blocks of a cluster share K."""
    x, weight, operands = make_tensors(shape)
    types = "float32,float32"
    for shares in (1, 2, 4):
        if shares > 1 and shape[2] < 64 * shares:
            break
        with force_tile(f"{tile}.tf32x3@k{shares}"):
            sums = functional.linear(x, weight, precision=precision)
            assert is_within(count_kernels(lambda: run(x, weight, operands, precision)))
            found = run(x, weight, operands, precision)
        expected = ops.apply_program(sums, operands, TEXT, types)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other), shares


# Which operand is which: rows, columns, scalars and tiles of all types, and three results.
MANY = make_program(
    *("v0 = add acc p0", "v1 = mul v0 p1", "v2 = add v1 p2", "v3 = mul v2 p3", "v4 = mul v3 p4"),
    *("v5 = add v4 p5", "v6 = mul v5 p6", "v7 = add v6 p7", "v8 = gt v7 0x0.0p+0"),
    *("v9 = where v8 v7 v0", "return v9 v7 v3"),
    operands=8,
)


@pytest.mark.parametrize("tile", TILES)
def test_every_operand(tile):
    """Results of three types, of a program that can turn NaN into a number, of an x whose rows lie
    apart."""
    x, weight, _ = make_tensors((70, 100, 96))
    x = torch.nn.functional.pad(x, (0, 4))[:, :96]
    m, n = 70, 100
    sizes = [(n,), (m, n), (n,), (m, 1), (m, n), (n,), (m, 1), ()]
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.float32]
    operands = [torch.randn(size, device="cuda").to(dtypes[i % 4]) for i, size in enumerate(sizes)]
    types = "float32,bfloat16,float16"
    with force_tile(f"{tile}.tf32x3"):
        sums = functional.linear(x, weight, precision="ieee")
        found = ops.linear_epilogue(x, weight, operands, MANY, "ieee", types)
        names = count_kernels(lambda: ops.linear_epilogue(x, weight, operands, MANY, "ieee", types))
    assert is_within(names), names
    for one, other in zip(found, ops.apply_program(sums, operands, MANY, types), strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


CHOSEN = [(shape, precision) for shape in SHAPES for precision in ("ieee", "tf32")]
CHOSEN.remove(((1, 1024, 1024), "tf32"))  # a vector, which cuBLAS multiplies


@pytest.mark.parametrize(("shape", "precision"), CHOSEN, ids=str)
def test_one_kernel(shape, precision):
    """By the plan's own choice: a kernel with the program in it, and no other."""
    x, weight, operands = make_tensors(shape)
    names = count_kernels(lambda: run(x, weight, operands, precision))
    assert is_within(names), names


def test_a_capture_of_other_sizes_takes_a_tile_that_is_there():
    """Its own was never linked."""
    text = make_program("v0 = mul acc acc", "v1 = sub v0 acc", "return v1", operands=0)
    x, weight, _ = make_tensors((16384, 64, 64))
    ops.linear_epilogue(x[:64], weight, [], text, "ieee")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = ops.linear_epilogue(x, weight, [], text, "ieee")
    graph.replay()
    sums = x.double() @ weight.double().T
    torch.testing.assert_close(y.double(), sums * sums - sums, rtol=1e-5, atol=1e-4)


@pytest.fixture
def allow_tf32():
    old = torch.backends.cuda.matmul.allow_tf32
    yield lambda allowed: setattr(torch.backends.cuda.matmul, "allow_tf32", allowed)
    torch.backends.cuda.matmul.allow_tf32 = old


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors(shape, precision, allow_tf32):
    """No output is further from float64 than twice what PyTorch's own ops give."""
    if shape[0] == 1 and precision == "tf32":
        pytest.skip("cuBLAS multiplies a vector in fp32")
    x, weight, operands = make_tensors(shape)
    exact = compute(x.double() @ weight.double().T, *(each.double() for each in operands))
    allow_tf32(precision == "tf32")
    narrow = [operand.float() for operand in operands]
    yardsticks = [compute(x @ weight.T, *narrow)]
    if precision == "tf32":
        # cuBLAS may multiply small products in fp32 all the same.
        yardsticks.append(compute(round_to_tf32(x) @ round_to_tf32(weight).T, *narrow))
    for y, of_exact, *of_eager in zip(
        run(x, weight, operands, precision), exact, *yardsticks, strict=True
    ):
        unit = of_exact.abs().max() * 2**-23
        error = max((each.double() - of_exact).abs().max() for each in of_eager)
        assert (y.double() - of_exact).abs().max() <= 2 * error + unit


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("shape", [(33, 72, 96), (70, 37, 132), (16, 512, 512)], ids=str)
def test_special_values(shape, precision):
    """NaN and infinities of x, of the weight and of sums, where PyTorch has them."""
    x, weight, operands = make_tensors(shape)
    x[0, 1], x[2, 3], x[4, 0] = float("inf"), float("nan"), 1e38
    weight[5, 2], weight[6, 0] = float("-inf"), 1e5
    found = run(x, weight, operands, precision)
    eager = compute(x @ weight.T, *(each.float() for each in operands))
    for y, of_eager in zip(found, eager, strict=True):
        assert torch.equal(y.isnan(), of_eager.isnan())
        for sign in (float("inf"), float("-inf")):
            assert torch.equal(y == sign, of_eager == sign)


def test_gradients():
    """A step through a layer of this size: the forward pass keeps what the backward pass reads."""
    from cutlass_fused import nn

    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.SiLU()).cuda()
    ours = nn.LinearActivation.from_eager(plain[0], torch.nn.SiLU())
    x = torch.randn(50, 64, device="cuda")
    grad = torch.randn(50, 128, device="cuda")

    def step(model, x, grad):
        x = x.clone().requires_grad_()
        y = model(x)
        parameters = [each for each in model.parameters() if each.requires_grad]
        return [y, *torch.autograd.grad(y, [x, *parameters], grad)]

    found, eager = step(ours, x, grad), step(plain, x, grad)
    exact = step(plain.double(), x.double(), grad.double())
    for one, of_eager, of_exact in zip(found, eager, exact, strict=True):
        bound = 2 * (of_eager.double() - of_exact).abs().max() + of_exact.abs().max() * 2**-23
        assert (one.double() - of_exact).abs().max() <= bound


def test_captured_and_replayed():
    x, weight, operands = make_tensors((16, 512, 512))
    run(x, weight, operands, "ieee")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run(x, weight, operands, "ieee")
    x.copy_(make_tensors((16, 512, 512), seed=1)[0])
    graph.replay()
    for one, other in zip(found, run(x, weight, operands, "ieee"), strict=True):
        assert torch.equal(one, other)


def test_behind_each_other():
    """A chain, each product of which begins while the one before it ends."""
    x, weight, _ = make_tensors((64, 128, 128))
    weight /= 8
    text = make_program("v0 = relu acc", "return v0", operands=0)
    expected = x
    for _ in range(20):
        expected = ops.linear_epilogue(expected, weight, [], text, "ieee")[0]
        torch.cuda.synchronize()
    for _ in range(20):
        y = x
        for _ in range(20):
            y = ops.linear_epilogue(y, weight, [], text, "ieee")[0]
        assert torch.equal(y, expected)
