"""Products of batches of fp32 matrices, against float64 and PyTorch."""

import itertools

import pytest
import torch
from tiles import force_tile, list_tf32x3

pytestmark = pytest.mark.gpu

bmm = torch.ops.cutlass_fused.bmm
SHAPES = (
    (1, 5, 7, 33),  # a batch of one
    (3, 33, 65, 100),  # one row and column more than a warp has
    (5, 130, 40, 67),  # odd K: no piece of 16 bytes is aligned
    (96, 64, 64, 64),  # attention: many small matrices
    (70000, 2, 3, 40),  # more matrices than a dimension of a grid has blocks
    (2, 16, 24, 20000),  # K is cut into parts
    (4, 50, 30, 8),  # short K: plain fp32
    (2, 2100, 2048, 1024),  # one by one
)
ENGINES = ("", "tf32x3", "split_rows", "cublas")


def turn(batch):
    return batch.transpose(1, 2).contiguous().transpose(1, 2)


def check(y, x, weight):
    """By the rule of every product: twice eager's error, and one unit in the last place."""
    truth = x.double() @ weight.double().transpose(1, 2)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    eager = torch.bmm(x, weight.transpose(1, 2))
    limit = 2 * (eager - truth).abs().max() + truth.abs().max() * 2.0**-23
    assert y.shape == truth.shape and y.is_contiguous()
    assert (y - truth).abs().max() <= limit


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_and_order(device, shape, majors, engine):
    batch, m, n, k = shape
    if engine == "split_rows" and batch > 1000:
        pytest.skip("as many launches")
    torch.manual_seed(0)
    x, weight = torch.randn(batch, m, k, device=device), torch.randn(batch, n, k, device=device)
    x, weight = (turn(t) if mn else t for t, mn in zip((x, weight), majors, strict=True))
    with force_tile(engine):
        check(bmm(x, weight), x, weight)


@pytest.mark.parametrize("shares", [1, 2, 4, 16])
@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)), ids=str)
def test_every_tile(device, majors, shares):
    """Of one matrix for all of a batch, too."""
    x, weight = torch.randn(3, 132, 1100, device=device), torch.randn(3, 100, 1100, device=device)
    x, weight = (turn(t) if mn else t for t, mn in zip((x, weight), majors, strict=True))
    for one in (weight, weight[:1].expand(3, -1, -1)):
        for tile in list_tf32x3(x, one):
            with force_tile(f"{tile}@k{shares}"):
                check(bmm(x, one), x, one)


@pytest.mark.parametrize("engine", ENGINES)
def test_any_strides(device, engine):
    """Views as programs have them: a matrix for all of a batch, heads of one tensor, one row, rows
    that overlap, every other column."""
    heads = torch.randn(4, 50, 6, 40, device=device)  # (batch, sequence, heads, width)
    one = torch.randn(4, 60, 40, device=device)
    cases = {
        "expanded weight": (one, torch.randn(30, 40, device=device).expand(4, 30, 40)),
        "expanded x": (torch.randn(30, 40, device=device).expand(4, 30, 40), one),
        "heads": (heads.transpose(1, 2)[1], heads.transpose(1, 2)[2]),
        "one row": (one[:, :1], torch.randn(4, 90, 40, device=device)),
        "an offset": (one[:, 3:, 1:], torch.randn(4, 9, 39, device=device)),
        "overlap": (torch.randn(500, device=device).as_strided((4, 9, 40), (7, 3, 1)), one),
        "every other": (torch.randn(4, 9, 80, device=device)[..., ::2], one),
    }
    with force_tile(engine):
        for x, weight in cases.values():
            check(bmm(x, weight), x, weight)


def test_tf32_is_asked_for_by_the_argument(device):
    x, weight = torch.randn(8, 64, 512, device=device), torch.randn(8, 64, 512, device=device)
    truth = x.double() @ weight.double().transpose(1, 2)
    for engine, setting in itertools.product(ENGINES, ("ieee", "tf32")):
        torch.backends.cuda.matmul.fp32_precision = setting
        with force_tile(engine):
            errors = [
                ((bmm(x, weight, p) - truth).norm() / truth.norm()).item() for p in ("ieee", "tf32")
            ]
        assert errors[0] < 1e-6 and errors[1] < 1e-3
    torch.backends.cuda.matmul.fp32_precision = "ieee"


def test_in_a_graph(device):
    x, weight = torch.randn(8, 64, 20000, device=device), torch.randn(8, 64, 20000, device=device)
    for engine in ENGINES:
        with force_tile(engine):
            expected = bmm(x, weight)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = bmm(x, weight)
        y.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, expected)


def test_what_is_not_finite(device):
    x, weight = torch.randn(3, 40, 50, device=device), torch.randn(3, 60, 50, device=device)
    x[1, 3, 7], weight[2, 5, 9], x[0, 0, 0] = torch.inf, -torch.inf, torch.nan
    for engine in ENGINES:
        with force_tile(engine):
            y = bmm(x, weight)
        torch.testing.assert_close(
            y, x @ weight.transpose(1, 2), rtol=1e-4, atol=1e-4, equal_nan=True
        )
