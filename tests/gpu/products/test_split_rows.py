"""split_weight, number by number, and the products that are handed what it returns."""

import pytest
import torch
from calls import LINEAR, PRODUCT_OPS, STATISTICS_OPS
from cases import IEEE, TF32, Shape, make_call
from cases_statistics import make_statistics_call
from check_call import check_bound, check_call, run_poisoned
from tiles import force_tile, list_tiles

from cutlass_fused import find_engine

pytestmark = pytest.mark.gpu

BLOCK = 64  # of K: so many hi, then as many lo
LARGEST_EXPONENT = 14  # of a scaled row's largest number, or one less
LOW_UNIT = 2.0**-11
WHOLE = {"ieee": 2.0**-13, "tf32": 2.0**-14}  # a scaled number below loses digits
# A sum of products must be so many times what a row lost.
LEAST = {"ieee": 2.0**15 * 2.0**22, "tf32": 2.0**15 * 2.0**11}
UNIT = {"ieee": 2.0**-52, "tf32": 2.0**-41}  # in which losses are counted, each rounded up
PRECISIONS = {"ieee": IEEE, "tf32": TF32}

split_weight = torch.ops.cutlass_fused.split_weight


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Small products too, which would be multiplied as they lie."""
    torch.ops.cutlass_fused.force_tile("split_rows")


def round_up(number, step):
    return -(-number // step) * step


def split_in_float64(weight, precision):
    """hi and lo as one fp16 matrix of the documented layout, h, what a row lost, and how often."""
    n, k = weight.shape
    wide = weight.double()
    largest = wide.abs().amax(1)
    exponent = torch.frexp(largest).exponent.long() - 1
    inverse = torch.where(largest > 0, (LARGEST_EXPONENT - exponent) // 2, 0)
    inverse = torch.where(largest.isfinite(), inverse, 0)
    exact = wide * torch.ldexp(torch.ones_like(largest), 2 * inverse)[:, None]
    scaled = exact.float()
    high = scaled.half()
    low = ((scaled - high.float()) / LOW_UNIT).half()
    h = torch.ldexp(torch.ones_like(largest), -inverse).float()
    kept = high.double() + (low.double() * LOW_UNIT if precision == "ieee" else 0)
    losses = torch.where(exact.abs() < WHOLE[precision], (exact - kept).abs(), 0)
    lost, count = losses.sum(1), (losses > 0).sum(1)
    if precision == "tf32":
        rows = torch.zeros(n, round_up(k, 8), dtype=torch.float16, device=weight.device)
        rows[:, :k] = high
        return rows, h, lost, count
    rows = torch.zeros(n, 2, round_up(k, BLOCK), dtype=torch.float16, device=weight.device)
    rows[:, 0, :k], rows[:, 1, :k] = high, low
    blocks = rows.reshape(n, 2, -1, BLOCK).transpose(1, 2)
    return blocks.reshape(n, -1), h, lost, count


def read_split(split, weight, precision):
    """The rows, h, and the least sum of products that each row allows."""
    n, k = weight.shape
    pitch = 2 * round_up(k, BLOCK) if precision == "ieee" else round_up(k, 8)
    offset = round_up(2 * n * pitch, 256)
    assert split.shape == (offset + 4 * n,)
    rows = split[: 2 * n * pitch].view(torch.float16).view(n, pitch)
    bits = split[offset:].view(torch.int32)
    h = (bits & 0x7F800000).view(torch.float32)
    least = ((bits & 0x007FFFFF) << 8).view(torch.float32)
    return rows, h, least


def check_split(weight, precision):
    """Returns the least sums of products."""
    rows, h, least = read_split(split_weight(weight, precision), weight, precision)
    expected_rows, expected_h, lost, count = split_in_float64(weight, precision)
    good = weight.isfinite().all(1)
    assert least[~good].isinf().all()
    for ours, expected in ((rows, expected_rows), (h, expected_h)):
        torch.testing.assert_close(ours[good], expected[good], rtol=0, atol=0)
    # The power of two above, also of what is so small that the scaling itself loses it.
    needed = lost[good] * LEAST[precision]
    assert ((least[good] > 0) == (lost[good] > 0)).all()
    assert (least[good] >= needed * (1 - 1e-4)).all()
    limit = (2 + 1e-4) * (needed + count[good] * UNIT[precision] * LEAST[precision])
    assert (least[good] <= limit).all()
    return least


# A thread holds 16 numbers, of a K above 4096 twice as many, and above 8192 reads others twice. A
# block has 32 threads of a row, or up to 8 times as many. Odd K: rows that begin anywhere.
DEPTHS = (33, 40, 64, 67, 128, 512, 520, 1000, 1024, 1025, 4096, 4097, 8192, 8200, 20000, 20001)


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_number(device, precision, k):
    least = check_split(torch.randn(37, k, device=device), precision)
    assert (least == 0).sum() > 30


@pytest.mark.parametrize("k", [33, 1000, 20000])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_numbers_of_many_magnitudes(device, precision, k):
    weight = torch.exp(4 * torch.randn(37, k, device=device))
    assert (check_split(weight, precision) > 0).any() or k == 33


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_magnitude(device, precision):
    exponents = torch.arange(-149, 128, device=device)
    largest = torch.ldexp(torch.ones_like(exponents, dtype=torch.float64), exponents)
    weight = (largest[:, None] * torch.rand(1, 64, dtype=torch.float64, device=device)).float()
    weight[:, 5] = largest.float()
    weight[:, 6] = 0
    assert (check_split(weight, precision) == 0).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_that_lose_something(device, precision):
    weight = torch.randn(9, 72, device=device)
    weight[0] = 0
    weight[1, 7] = torch.inf
    weight[2, 71] = torch.nan
    weight[3, 0] = -torch.inf
    weight[4, 1] = 1e30
    weight[5, 1], weight[5, 2] = 1e30, 1e-30
    weight[6, 3] = 1e-30
    weight[7] = 1e-42
    least = check_split(weight, precision)
    lossy = [False, True, True, True, True, True, True, False, False]
    assert (least > 0).tolist() == lossy
    assert least.isinf().tolist() == [False, True, True, True] + [False] * 5


@pytest.mark.parametrize(
    "view",
    [
        lambda w: w[:, 1:70],
        lambda w: w[::2],
        lambda w: w[:, :79].t(),  # of four rows, and multiples, it is split along N
        lambda w: w[3:4],
        lambda w: w[:, ::2],
    ],
    ids=["odd offset", "every second row", "transposed", "one row", "every second column"],
)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_any_strides(device, precision, view):
    check_split(view(torch.randn(80, 80, device=device)), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("op", PRODUCT_OPS)
def test_a_product_with_it_has_the_same_bits(device, op, precision):
    make = make_statistics_call if op in STATISTICS_OPS else make_call
    call = make(op, Shape(70, 136, 200, "several tiles"), PRECISIONS[precision], device)
    split = split_weight(call.weight, precision)
    copied = call.copy_updated()
    results = copied.overload()(*copied.arguments(), weight_split=split)
    for name, result in copied.name_results(results).items():
        assert torch.equal(result, call.run_all()[name]), name


def test_what_it_is_not(device):
    call = make_call(LINEAR, Shape(70, 136, 200, "several tiles"), IEEE, device)
    matrices = (call.x, call.weight)
    split = split_weight(call.weight, "tf32")
    linear = torch.ops.cutlass_fused.linear
    with pytest.raises(RuntimeError, match=r"weight_split must be what split_weight returns for"):
        linear(*matrices, weight_split=split)
    with pytest.raises(RuntimeError, match="weight_split must be what split_weight returns, got"):
        linear(*matrices, weight_split=split.float())
    with pytest.raises(RuntimeError, match="weight_split must be on the device of x"):
        linear(*matrices, weight_split=split.cpu())
    shifted = torch.cat(
        [split_weight(call.weight, "ieee")[:4]] + [split_weight(call.weight, "ieee")]
    )
    with pytest.raises(RuntimeError, match="aligned to 16, got .* 4 above a multiple of 16"):
        linear(*matrices, weight_split=shifted[4:])
    check_call(call)


def test_find_engine(device):
    """Sizes, precision, dtype and device say; K = 32 is the last that is multiplied as it is."""

    def find(k, precision, dtype=torch.float32, on=device, size=3):
        x, weight = (torch.empty(rows, k, dtype=dtype, device=on) for rows in (size, size + 2))
        return find_engine(x, weight, precision)

    assert [find(k, "ieee") for k in (1, 32, 33, 512)] == ["simt", "simt", "tf32x3", "tf32x3"]
    assert [find(k, "tf32") for k in (32, 33)] == ["simt", "tf32x3"]
    assert [find(4096, word, size=4096) for word in PRECISIONS] == ["fp16x3", "fp16x1"]
    assert find(64, "ieee", torch.bfloat16) == "plain"
    assert find(64, "ieee", on="cpu") == "reference"


@pytest.mark.parametrize("k", [1, 32])
def test_nothing_is_split_where_fp32_is_more_accurate(device, k):
    assert split_weight(torch.randn(8, k, device=device), "ieee").numel() == 0


SPREAD = Shape(150, 136, 200, "several tiles, a K that is no whole block")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_out_of_reach_are_what_fp32_says(device, precision):
    """The terms that count are of numbers that a split loses: of x, of weight, and of both."""
    call = make_call(LINEAR, SPREAD, PRECISIONS[precision], device)
    before = run_poisoned(call)
    large = 5
    call.x[[3, 140], large] = 1e30
    call.weight[:, large] = 0  # so that all other terms count
    call.weight[[0, 100], 7] = 1e-33
    call.x[:, 7] = 0
    call.x[77, 7] = 1e33
    after = run_poisoned(call)
    check_bound(call, after)
    exact = call.x.double() @ call.weight.double().t() + call.bias.double()
    rows = torch.tensor([3, 140], device=device)
    torch.testing.assert_close(after[rows].double(), exact[rows], rtol=1e-5, atol=1e-6)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_only_what_lost_digits_is_computed_again(device, precision):
    """An output whose large terms count keeps its bits though its row lost small ones."""
    call = make_call(LINEAR, SPREAD, PRECISIONS[precision], device)
    call.x[3, 5] = 2.0**60
    result = run_poisoned(call)
    check_bound(call, result)
    alone = call.x.clone()
    alone[3] = 0
    alone[3, 5] = 2.0**60
    expected = run_poisoned(call.change(x=alone))
    assert torch.equal(result[3], expected[3])


@pytest.mark.parametrize("count", [1, 8, 9, 64], ids=lambda count: f"{count} rows of a tile")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_few_and_many_outputs_of_a_tile(device, precision, count):
    """Each of up to 512 is computed by a warp, else the whole tile."""
    call = make_call(LINEAR, SPREAD, PRECISIONS[precision], device)
    call.x[64 : 64 + count, 5] = 1e30
    call.weight[:, 5] = 0
    check_bound(call, run_poisoned(call))


SPREADS = {
    "softmax": lambda *shape: torch.softmax(4 * torch.randn(*shape, device="cuda"), 1),
    "sigmoid": lambda *shape: torch.sigmoid(8 * torch.randn(*shape, device="cuda")),
    "log-normal": lambda *shape: torch.exp(3 * torch.randn(*shape, device="cuda")),
    "wider": lambda *shape: torch.exp(8 * torch.randn(*shape, device="cuda")),
    "binades": lambda m, k: (
        torch.randn(m, k, device="cuda") * torch.exp2(torch.linspace(-60, 60, k, device="cuda"))
    ),
}


@pytest.mark.parametrize("k", [33, 1000, 8192])
@pytest.mark.parametrize("of_weight", SPREADS)
@pytest.mark.parametrize("of_x", SPREADS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bound_of_numbers_of_many_magnitudes(device, precision, of_x, of_weight, k):
    call = make_call(LINEAR, Shape(70, 136, k, "several tiles"), PRECISIONS[precision], device)
    call = call.change(x=SPREADS[of_x](70, k), weight=SPREADS[of_weight](136, k).flip(1))
    call = call.change(bias=torch.zeros(136, device=device))
    check_bound(call, run_poisoned(call))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("k", [64, 128, 8192])
def test_bound_where_every_sum_is_truncated(device, precision, k):
    """Terms of one sign, each of which the tensor cores' alignment cuts off in full."""
    small = 2.0**-12 * (1 - 2.0**-11)
    row = torch.full((k,), small, device=device)
    row[::64] = 1 + 2.0**-11 - 2.0**-22
    call = make_call(LINEAR, Shape(70, 136, k, "several tiles"), PRECISIONS[precision], device)
    call = call.change(x=row.repeat(70, 1), weight=row.repeat(136, 1))
    call = call.change(bias=torch.zeros(136, device=device))
    for tile in (tile for tile in list_tiles(call) if tile != "cublas"):
        with force_tile(tile):
            check_bound(call, run_poisoned(call))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scales_are_taken_back_in_two_steps(device, precision):
    """The square of what is taken back is beyond fp32, the result is not."""
    call = make_call(LINEAR, Shape(40, 72, 40, "small"), PRECISIONS[precision], device)
    x, weight = torch.zeros_like(call.x), torch.zeros_like(call.weight)
    x[:, 0], x[:, 1] = 2.0**110, 2.0**90
    weight[:, 1], weight[:, 2] = 2.0**36, 2.0**56
    bias = torch.zeros_like(call.bias)
    result = run_poisoned(call.change(x=x, weight=weight, bias=bias))
    assert (result == 2.0**126).all()
