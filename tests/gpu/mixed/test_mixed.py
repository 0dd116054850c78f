"""x of 16 bits beside a weight of float32: values, layouts, special numbers, kept parts."""

import itertools

import pytest
import torch
from check_call import poison_memory
from judge_mixed import check_product
from layouts import MATRIX_LAYOUTS, repeat_first_row
from tiles import force_tile

import cutlass_fused
from cutlass_fused import functional, nn

pytestmark = pytest.mark.gpu

SIXTEEN_BIT = (torch.bfloat16, torch.float16)
PRECISIONS = ("ieee", "tf32")
OUT_DTYPES = (None, torch.float32)
# (M, N, K), with its reason.
SHAPES = {
    (1, 8, 64): "a router of one token",
    (7, 8, 4096): "few tokens, few experts",
    (64, 64, 2048): "a small batch",
    (200, 128, 7168): "a batch of decoding, a long K",
    (1024, 256, 1024): "many experts",
    (4096, 64, 2048): "a prefill",
    (16384, 8, 512): "many tokens, few experts",
    (16384, 256, 64): "a short K",
    (2048, 160, 8192): "the widest hidden state",
    (300, 1000, 512): "a head",
    (64, 32000, 1024): "a vocabulary",
    (1, 1, 1): "nothing but one number",
    (40, 72, 32): "K that CUDA cores or cuBLAS multiply",
    (40, 72, 33): "one more than that",
    (37, 77, 51): "odd sizes: no row but the first is aligned",
    (129, 66, 1030): "rows of 4 bytes in 16 bits, of 8 in fp32",
    (70, 8, 1032): "x of whole 16 bytes, K no multiple of a stage",
    (2050, 1, 768): "a head of one output",
    (520, 520, 96): "several tiles",
}
each_dtype = pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=str)
each_out_dtype = pytest.mark.parametrize("out_dtype", OUT_DTYPES, ids=str)
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


def make_matrices(device, dtype, shape, spread=0):
    """x and weight; `spread`: so many binades that rows of x span beside each other."""
    m, n, k = shape
    generator = torch.Generator(device).manual_seed(m + n + k)
    x = torch.randn(m, k, device=device, generator=generator)
    if spread:
        exponents = torch.randint(-spread, 1, (m, k), device=device, generator=generator)
        x = torch.ldexp(x, exponents)
    weight = torch.randn(n, k, device=device, generator=generator) / k**0.5
    return x.to(dtype), weight


def run(x, weight, bias=None, **options):
    """In memory that held NaN before."""
    shape = (*x.shape[:-1], weight.shape[0])
    poison_memory(shape, options.get("out_dtype") or x.dtype, x.device)
    return functional.linear(x, weight, bias, **options)


@each_out_dtype
@each_precision
@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device, shape, dtype, precision, out_dtype):
    x, weight = make_matrices(device, dtype, shape)
    bias = torch.randn(shape[1], device=device)
    y = run(x, weight, bias, precision=precision, out_dtype=out_dtype)
    assert y.dtype == (out_dtype or dtype)
    check_product(y, x, weight, bias, precision)
    again = run(x, weight, bias, precision=precision, out_dtype=out_dtype)
    assert torch.equal(y, again)


@pytest.mark.parametrize("shape", [(0, 8, 64), (5, 0, 64), (5, 8, 0)], ids=str)
@each_dtype
def test_empty_sizes(device, dtype, shape):
    x, weight = make_matrices(device, dtype, shape)
    y = run(x, weight)
    assert y.dtype == dtype and torch.equal(y, torch.zeros_like(y))


@each_dtype
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=lambda f: f.__name__)
def test_layouts(device, layout, dtype):
    for shape in ((70, 136, 64), (600, 64, 1000)):
        x, weight = make_matrices(device, dtype, shape)
        pairs = [(layout(x), weight), (x, layout(weight))]
        # Where all rows of both are one, so are all outputs: that one errs by less is luck.
        if layout is not repeat_first_row:
            pairs.append((layout(x), layout(weight)))
        for matrices in pairs:
            check_product(run(*matrices, out_dtype=torch.float32), *matrices)


@each_dtype
@pytest.mark.parametrize("offset", [1, 2, 3, 4, 8])
def test_rows_that_begin_anywhere(device, offset, dtype):
    x, weight = make_matrices(device, dtype, (70, 72, 104))
    around = torch.full((70, 128), torch.nan, device=device, dtype=dtype)
    view = around[:, offset : offset + 104]
    view.copy_(x)
    expected = run(x, weight)
    for tile in ("", "tf32x3", "split_rows"):
        with force_tile(tile):
            check_product(run(view, weight), x, weight)
    if offset == 8:
        assert torch.equal(run(view, weight), expected)


@each_dtype
def test_leading_dimensions(device, dtype):
    x, weight = make_matrices(device, dtype, (60, 64, 128))
    expected = run(x, weight)
    assert torch.equal(run(x.view(3, 4, 5, 128), weight), expected.view(3, 4, 5, 64))
    check_product(run(x[0], weight), x[0], weight)


@each_out_dtype
@each_dtype
def test_special_values(device, dtype, out_dtype):
    info = torch.finfo(dtype)
    values = (torch.inf, -torch.inf, torch.nan, info.max, -info.max, info.smallest_normal)
    for shape in ((70, 72, 200), (1030, 264, 512)):
        x, weight = make_matrices(device, dtype, shape)
        for i, value in enumerate((*values, info.smallest_normal / 8, 0.0)):
            x[3 + i, 5 + i] = value
        x[40] = torch.inf
        x[41] = torch.nan
        weight[7] = 0
        weight[8, 9] = torch.inf
        weight[9, 10] = torch.nan
        for tile in ("", "tf32x3", "split_rows"):
            with force_tile(tile):
                check_product(run(x, weight, out_dtype=out_dtype), x, weight)


@each_dtype
def test_subnormal_numbers_alone(device, dtype):
    """Each of them counts: those of fp16 are normal in TF32, those of bf16 are not."""
    x, weight = make_matrices(device, dtype, (70, 72, 256))
    tiny = torch.finfo(dtype).smallest_normal
    x = (x.float().clamp(-2, 2) * tiny / 4).to(dtype)
    weight = weight * 2.0**60
    assert (x != 0).float().mean() > 0.9
    for tile in ("", "tf32x3", "split_rows"):
        with force_tile(tile):
            check_product(run(x, weight, out_dtype=torch.float32), x, weight)


@each_precision
@pytest.mark.parametrize("spread", [12, 24, 60])
def test_rows_of_a_wide_range(device, spread, precision):
    """Numbers far below the largest of their row, of which parts in fp16 hold fewer digits."""
    for shape in ((64, 64, 2048), (2048, 264, 1024)):
        x, weight = make_matrices(device, torch.bfloat16, shape, spread)
        weight[:, :8] = 0  # so that the largest do not hide the others
        for tile in ("", "tf32x3", "split_rows"):
            with force_tile(tile):
                y = run(x, weight, precision=precision, out_dtype=torch.float32)
                check_product(y, x, weight, precision=precision)


@each_out_dtype
@each_precision
@each_dtype
def test_kept_parts_change_no_bit(device, dtype, precision, out_dtype):
    options = {"precision": precision, "out_dtype": out_dtype}
    for shape, tile in itertools.product(
        ((64, 64, 2048), (1030, 520, 512), (4096, 1000, 1024)), ("", "split_rows")
    ):
        x, weight = make_matrices(device, dtype, shape)
        with force_tile(tile):
            first, second = run(x, weight, **options), run(x, weight, **options)
            cutlass_fused.keep_splits(False)
            try:
                without = run(x, weight, **options)
            finally:
                cutlass_fused.keep_splits(True)
            given = torch.ops.cutlass_fused.split_weight(weight, precision)
            beside = run(x, weight, weight_split=given, **options)
        for other in (second, without, beside):
            assert torch.equal(first, other), (shape, tile)


@each_dtype
def test_a_weight_that_is_gone(device, dtype):
    """What prepare() left of it."""
    module = nn.Linear(256, 136, precision="ieee", device=device).eval()
    x = torch.randn(70, 256, device=device).to(dtype)
    weight, bias = module.weight.detach().clone(), module.bias.detach().clone()
    cutlass_fused.prepare(module, keep_weights=False)
    with torch.no_grad():
        check_product(module(x), x, weight, bias)


@each_out_dtype
@each_dtype
def test_other_functions(device, dtype, out_dtype):
    """What follows the product, of x in float32, rounded once."""
    for shape in ((64, 64, 2048), (1030, 520, 512), (37, 77, 51), (40, 72, 16)):
        x, weight = make_matrices(device, dtype, shape)
        bias, mean, gamma = (torch.randn(shape[1], device=device) for _ in range(3))
        var = torch.rand(shape[1], device=device) + 0.5
        calls = (
            lambda x, w=weight, b=bias, **o: functional.linear_scale_leaky_relu(
                x, w, b, 1.5, 0.1, **o
            ),
            lambda x, w=weight, b=bias, s=(mean, var, gamma), **o: (
                functional.linear_scale_batch_norm(x, w, b, 0.7, *s, **o)
            ),
        )
        for call in calls:
            ours = call(x, precision="ieee", out_dtype=out_dtype)
            wide = call(x.float(), precision="ieee")
            assert ours.dtype == (out_dtype or dtype)
            eps = torch.finfo(ours.dtype).eps
            torch.testing.assert_close(ours.float(), wide, rtol=eps, atol=1e-5 + eps / 8)


@each_dtype
def test_modules(device, dtype):
    x = torch.randn(130, 256, device=device).to(dtype)
    modules = (
        nn.Linear(256, 136, precision="ieee"),
        nn.LinearScaleLeakyReLU(256, 136, 2.0, 0.1, precision="ieee"),
        nn.LinearScaleBatchNorm1d(256, 136, (), precision="ieee"),
    )
    for module in modules:
        module = module.to(device).eval()
        with torch.no_grad():
            ours, wide = module(x), module(x.float())
        assert ours.dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(ours.float(), wide, rtol=eps, atol=1e-5 + eps / 8)


def test_engine_is_named(device):
    x, weight = make_matrices(device, torch.bfloat16, (1024, 1024, 1024))
    engines = {"ieee": {"fp16x3", "tf32x3", "cublas"}, "tf32": {"fp16x1", "tf32x3"}}
    for precision, names in engines.items():
        assert cutlass_fused.find_engine(x, weight, precision) in names
    assert cutlass_fused.find_engine(x, weight.bfloat16()) == "plain"
