"""Products of batches of 16-bit matrices, in any order of operands, each product judged as that of
two matrices is."""

import itertools

import pytest
import torch
from accuracy import Judge
from calls import LINEAR, Call
from tiles import force_tile

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("choose_freely")]

bmm = torch.ops.cutlass_fused.bmm
DTYPES = (torch.bfloat16, torch.float16)
SHAPES = (
    (1, 5, 7, 33),  # a batch of one
    (3, 33, 65, 100),
    (5, 130, 41, 67),  # odd sizes: no line but the first is aligned
    (96, 64, 64, 64),  # attention: many small matrices
    (70000, 2, 3, 40),  # more matrices than a dimension of a grid has blocks
    (2, 16, 24, 20000),  # K is cut into parts
    (4, 50, 30, 1),  # outer products
    (2, 1, 264, 256),  # a row each
)
ENGINES = ("", "sm80", "cublas")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda name: name or "chosen")


def draw(*shape, device, dtype):
    """Sums of order 1."""
    return (torch.randn(shape, device=device) / shape[-1] ** 0.25).to(dtype)


def turn(batch):
    return batch.transpose(1, 2).contiguous().transpose(1, 2)


def check(y, x, weight):
    batches = x.shape[0]
    assert y.shape == (batches, x.shape[1], weight.shape[1])
    assert y.dtype == x.dtype and y.is_contiguous() and not y.isnan().any()
    for b in sorted({0, batches // 2, batches - 1}):
        Judge(Call(LINEAR, x[b], weight[b])).check(y[b])
    # Of all: within a few units in the last place of a truth rounded once.
    truth = x.float() @ weight.float().transpose(1, 2)
    eps = torch.finfo(x.dtype).eps
    torch.testing.assert_close(y.float(), truth, rtol=2 * eps, atol=1e-4)


@each_engine
@each_dtype
@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_order(device, shape, majors, dtype, engine):
    batch, m, n, k = shape
    if engine == "sm80" and batch > 1000:
        pytest.skip("as many launches")
    torch.manual_seed(0)
    x = draw(batch, m, k, device=device, dtype=dtype)
    weight = draw(batch, n, k, device=device, dtype=dtype)
    x, weight = (turn(t) if mn else t for t, mn in zip((x, weight), majors, strict=True))
    with force_tile(engine):
        y = bmm(x, weight)
        check(y, x, weight)
        assert torch.equal(bmm(x, weight), y)


@each_engine
@each_dtype
def test_any_strides(device, dtype, engine):
    """Views as programs have them: a matrix for all of a batch, in either order, heads of one
    tensor, one row, rows that overlap, every other column."""

    def make(*shape):
        return draw(*shape, device=device, dtype=dtype)

    heads = make(4, 50, 6, 40)  # (batch, sequence, heads, width)
    one = make(4, 60, 40)
    cases = (
        (one, make(30, 40).expand(4, 30, 40)),
        (one, make(40, 30).t().expand(4, 30, 40)),
        (make(30, 40).expand(4, 30, 40), one),
        (make(40, 30).t().expand(4, 30, 40), turn(one)),
        (heads.transpose(1, 2)[1], heads.transpose(1, 2)[2]),
        (heads.permute(0, 2, 3, 1)[1], heads.permute(0, 2, 3, 1)[2]),
        (one[:, :1], make(4, 90, 40)),
        (one[:, 3:, 1:], make(4, 9, 39)),
        (make(500).as_strided((4, 9, 40), (7, 3, 1)), one),
        (make(4, 9, 80)[..., ::2], one),
        (make(4, 1, 40).expand(4, 9, 40), one),
        (make(4, 9, 1).expand(4, 9, 40), one),
    )
    with force_tile(engine):
        for x, weight in cases:
            check(bmm(x, weight), x, weight)


@each_dtype
def test_nothing_is_copied(device, dtype):
    """Of a matrix for all of a batch either."""
    for x_turned, weight_turned in itertools.product((False, True), repeat=2):
        x = draw(8, 128, 512, device=device, dtype=dtype)
        weight = draw(1, 256, 512, device=device, dtype=dtype)
        x = turn(x) if x_turned else x
        weight = (turn(weight) if weight_turned else weight).expand(8, -1, -1)
        bmm(x, weight)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = bmm(x, weight)
        assert torch.cuda.max_memory_allocated() - before == y.numel() * 2


@each_engine
@each_dtype
def test_in_a_graph(device, dtype, engine):
    x, weight = (turn(draw(8, 64, 20000, device=device, dtype=dtype)) for _ in range(2))
    with force_tile(engine):
        expected = bmm(x, weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = bmm(x, weight)
    y.fill_(torch.nan)
    graph.replay()
    assert torch.equal(y, expected)


@each_dtype
def test_empty(device, dtype):
    def make(*shape):
        return torch.ones(shape, device=device, dtype=dtype)

    assert bmm(make(0, 5, 7), make(0, 6, 7)).shape == (0, 5, 6)
    assert bmm(make(3, 0, 7), make(3, 6, 7)).shape == (3, 0, 6)
    y = bmm(make(3, 5, 0), make(3, 6, 0))
    assert torch.equal(y, torch.zeros_like(y)) and y.shape == (3, 5, 6) and y.dtype == dtype


def test_what_is_not_finite(device):
    for dtype, engine in itertools.product(DTYPES, ENGINES):
        x = draw(3, 40, 50, device=device, dtype=dtype)
        weight = draw(3, 60, 50, device=device, dtype=dtype)
        x[1, 3, 7], weight[2, 5, 9], x[0, 0, 0] = torch.inf, -torch.inf, torch.nan
        with force_tile(engine):
            y = bmm(turn(x), weight)
        torch.testing.assert_close(
            y, x @ weight.transpose(1, 2), rtol=2e-2, atol=1e-2, equal_nan=True
        )


def test_opcheck(device):
    for dtype in DTYPES:
        x = draw(3, 5, 8, device=device, dtype=dtype)
        torch.library.opcheck(bmm, (x, turn(draw(3, 7, 8, device=device, dtype=dtype))))


def test_bad_input(device):
    x = torch.ones(3, 4, 4, device=device)
    for bad, weight, message in (
        (x.double(), x.double(), "x must be float16, bfloat16 or float32, got float64"),
        (x.half(), x.bfloat16(), "weight must have the dtype of x, float16, got bfloat16"),
    ):
        with pytest.raises(RuntimeError, match=f"bmm: {message}"):
            bmm(bad, weight)
