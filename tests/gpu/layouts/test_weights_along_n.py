"""fp32 products with a weight that lies along N, as gradients of x have it: on a GPU of 9.0 its
parts are those of the rows of its transpose, which the product forward reads too, and the scales of
these rows go to x."""

import pytest
import torch
from calls import LEAKY, LINEAR
from cases import IEEE, TF32, Shape, make_call
from check_call import check_bound, check_call, run_poisoned
from layouts import lay, name_majors
from tiles import force_tile, has_sm90_kernels, list_sm90_tiles, name_raster, slices_k

from cutlass_fused import nn, prepare

pytestmark = pytest.mark.gpu

PRECISIONS = {"ieee": IEEE, "tf32": TF32}
each_precision = pytest.mark.parametrize("precision", PRECISIONS)
ALONG_N, BOTH = (False, True), (True, True)
each_majors = pytest.mark.parametrize("majors", [ALONG_N, BOTH], ids=name_majors)

SHAPES = (
    Shape(1, 64, 64, "one row"),
    Shape(7, 36, 40, "less than a tile in every direction; K no whole block of parts"),
    Shape(129, 132, 33, "a row and four columns more than a tile; the shortest K that is split"),
    Shape(300, 1000, 520, "blocks of parts that the last tile cuts"),
    Shape(65, 260, 4097, "a long K that ends behind a stage: rows behind the last are no parts"),
    Shape(513, 1028, 641, "odd K, several tiles"),
    Shape(16, 4096, 4096, "few rows"),
    Shape(1000, 4, 72, "the fewest columns that TMA writes"),
    Shape(2100, 1032, 1032, "more tiles than blocks fit on the GPU"),
)


@pytest.fixture(autouse=True)
def split_rows(device, free_the_tile):
    if not has_sm90_kernels(device):
        pytest.skip("needs kernels for compute capability 9.0")
    torch.ops.cutlass_fused.force_tile("split_rows")


def split(weight, precision):
    return torch.ops.cutlass_fused.split_weight(weight, precision)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.n > 32], ids=str)
@each_precision
def test_parts_are_those_of_the_transpose(device, precision, shape):
    weight = torch.randn(shape.k, shape.n, device=device)
    along_n, rows = (split(matrix, precision) for matrix in (weight.t(), weight))
    pitch = 128 * -(-shape.n // 64) if precision == "ieee" else 8 * -(-shape.n // 8)
    assert along_n.shape == rows.shape
    # What lies between the rows and their scales is nobody's.
    for part in (slice(2 * shape.k * pitch), slice(-4 * shape.k, None)):
        assert torch.equal(along_n[part], rows[part])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", [LINEAR, LEAKY])
@each_majors
@each_precision
def test_products(device, precision, majors, op, shape):
    call = lay(make_call(op, shape, PRECISIONS[precision], device), majors)
    check_call(call)
    kept = split(call.weight, precision)
    assert torch.equal(call.overload()(*call.arguments(), weight_split=kept), run_poisoned(call))


@pytest.mark.parametrize("shape", SHAPES[2:7], ids=str)
@each_precision
def test_every_tile(device, precision, shape):
    call = lay(make_call(LINEAR, shape, PRECISIONS[precision], device), BOTH)
    tiles = [tile for tile in list_sm90_tiles(call) if ".swapped" in tile]
    assert len(tiles) >= 6
    for tile in tiles:
        for count in (1, 2, 4) if slices_k(tile) else (1, 2):
            with force_tile(tile + name_raster(tile, count)):
                check_call(call)


@each_precision
def test_the_rest_is_split_along_k(device, precision):
    """Rows of y that TMA cannot write, a weight in pieces, and an epilogue without such kernels."""
    odd = lay(make_call(LINEAR, Shape(70, 129, 200, "odd N"), PRECISIONS[precision], device), BOTH)
    check_call(odd)
    whole = make_call(LINEAR, Shape(70, 132, 200, ""), PRECISIONS[precision], device)
    turned = lay(whole, ALONG_N)
    memory = torch.empty(70 * 132 + 1, device=device)[1:].view(70, 132)
    torch.ops.cutlass_fused.linear_out(memory, turned.x, turned.weight, turned.bias, precision)
    # It begins at no multiple of 16 bytes, and takes no kept parts either.
    assert torch.equal(memory, whole.run())


KINDS = {
    "rows of x": lambda x, w, s: (x * s(x)[:, None], w),
    "rows of weight": lambda x, w, s: (x, w * s(w)[:, None]),
    "k of x": lambda x, w, s: (x * s(x.t()), w),
    "k of weight": lambda x, w, s: (x, w * s(w.t())),
    "k of both": lambda x, w, s: (x * (k := s(x.t())), w / k),
    "tiny and huge": lambda x, w, s: (x * 1e-30, w * 1e30),
    "subnormal": lambda x, w, s: (x, w * 1e-40),
}


@pytest.mark.parametrize("shape", [(256, 512, 512), (65, 260, 4097)], ids=str)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@each_majors
@each_precision
def test_scales(device, precision, majors, kind, shape):
    """Each output within its bound, whatever the scales of rows, columns and terms: what the parts
    lost in another direction than that of the sum is repaired."""
    call = make_call(LINEAR, Shape(*shape, ""), PRECISIONS[precision], device)
    generator = torch.Generator(device).manual_seed(1)

    def scales(rows):
        return 10.0 ** (torch.rand(len(rows), device=device, generator=generator) * 24 - 12)

    x, weight = kind(call.x, call.weight, scales)
    call = lay(call.change(x=x, weight=weight, bias=torch.zeros_like(call.bias)), majors)
    result = run_poisoned(call)
    assert result.isfinite().all()
    check_bound(call, result)


@each_precision
def test_a_column_far_below_its_rows(device, precision):
    """Features 1e-9 of the largest of their rows keep their digits in their own column."""
    call = make_call(LINEAR, Shape(256, 512, 1024, ""), PRECISIONS[precision], device)
    call.weight[::7] *= 1e-9
    call = lay(call.change(bias=torch.zeros_like(call.bias)), BOTH)
    exact = call.x.double() @ call.weight.double().t()
    error = (run_poisoned(call).double() - exact).norm(dim=0) / exact.norm(dim=0)
    plain = (torch.matmul(call.x, call.weight.t()).double() - exact).norm(dim=0)
    limit = 2 * (plain / exact.norm(dim=0)).max() if precision == "ieee" else 6e-4
    assert error.max() <= limit


@each_majors
@each_precision
def test_infinities_and_nan(device, precision, majors):
    call = make_call(LINEAR, Shape(150, 136, 200, ""), PRECISIONS[precision], device)
    call.x[3, 2], call.x[9, 3], call.weight[7, 2] = torch.inf, torch.nan, -torch.inf
    call.x[20] = 0
    expected = run_poisoned(call)
    assert not expected.isfinite().all()
    result = run_poisoned(lay(call, majors))
    finite = expected.isfinite()
    torch.testing.assert_close(result[~finite], expected[~finite], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(result[finite], expected[finite], rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("keep_weights", [True, False])
@torch.no_grad()
def test_prepared_modules(device, keep_weights):
    """A square weight along N: its parts and those of its transpose are of one size."""
    module = nn.Linear(256, 256, precision="ieee", device=device)
    module.weight = torch.nn.Parameter(torch.randn(256, 256, device=device).t())
    x = torch.randn(70, 256, device=device)
    exact = x.double() @ module.weight.double().t() + module.bias.double()
    expected = module(x)
    prepare(module, keep_weights=keep_weights)
    assert (module(x) - exact).norm() < 1e-6 * exact.norm()
    assert not keep_weights or torch.equal(module(x), expected)


def test_in_a_graph_and_on_another_stream(device):
    for shape in SHAPES[3:6]:
        call = lay(make_call(LINEAR, shape, IEEE, device), BOTH)
        expected = call.run()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            y = call.run()
        for _ in range(3):
            y.fill_(torch.nan)
            graph.replay()
            assert torch.equal(y, expected)
