"""How numbers are split that are multiplied by the powers of two of their k first, as those beside
a weight whose rows were split along the other side: the code of the kernels, run on the host,
against float64."""

import pytest
import torch
from host_program import compile_host_program

WIDTH = 8  # numbers of a row
LOW_UNIT = 2.0**-11
WHOLE = {"ieee": 2.0**-13, "tf32": 2.0**-14}  # a scaled number below loses digits
UNIT = {"ieee": 2.0**-52, "tf32": 2.0**-41}  # in which losses are counted, each rounded up
LEAST = 2.0**-15  # what a unit counts for in `least`
INFINITY = 0x7F800000
ALL = 2**48  # units: nothing is to be trusted
MOST = 126  # of the exponent of 1 / h
each_precision = pytest.mark.parametrize("precision", WHOLE)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """split(precision, numbers, scales) -> hi, lo, units, h, least of rows of 8 numbers."""
    folder = tmp_path_factory.mktemp("split_folded")
    program = compile_host_program("kernels/split_folded", folder, options=["-Wno-unknown-pragmas"])

    def run(precision, numbers, scales):
        rows = torch.cat([to_bits(numbers), to_bits(scales)], 1).tolist()
        has_low = int(precision == "ieee")
        lines = program([" ".join(map(str, (has_low, *row))) for row in rows])
        results = torch.tensor([list(map(int, line.split())) for line in lines])
        halves = results[:, :-2].to(torch.int16).view(torch.float16).reshape(len(rows), -1, WIDTH)
        scale = results[:, -1]
        h = to_floats(scale & INFINITY).double()
        return halves[:, 0], halves[:, -1], results[:, -2], h, to_floats((scale & 0x7FFFFF) << 8)

    return run


def to_bits(numbers):
    return numbers.float().view(torch.int32).long() & 0xFFFFFFFF


def to_floats(bits):
    return bits.to(torch.int32).view(torch.float32)


def make_scales(exponents, least=None):
    """RowScale: the exponent of h in its place, that of `least` at the head of the significand."""
    bits = (exponents + 127) << 23
    if least is not None:
        bits |= to_bits(least) >> 8
    return to_floats(bits)


def draw(count, spread, apart=8):
    """Numbers, and exponents of h: of rows of finite numbers, up to so far from each other."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(count, WIDTH, generator=generator)
    numbers *= torch.exp2(torch.randint(-spread, spread + 1, numbers.shape, generator=generator))
    of_row = torch.randint(-81, 58, (count, 1), generator=generator)
    exponents = of_row + torch.randint(-apart, apart + 1, numbers.shape, generator=generator)
    return numbers, exponents.clamp(-81, 57)


def multiply(numbers, exponents):
    return numbers.double() * torch.exp2(2.0 * exponents.double())


@pytest.mark.parametrize("spread", [0, 10, 40])
@each_precision
def test_against_float64(split, precision, spread):
    numbers, exponents = draw(4000, spread)
    high, low, units, h, least = split(precision, numbers, make_scales(exponents))
    folded = multiply(numbers, exponents)
    exponent = torch.frexp(folded.abs().amax(1)).exponent.long() - 1
    inverse = ((14 - exponent) // 2).clamp(max=MOST)
    assert torch.equal(h, torch.exp2(-inverse.double()))
    assert (least < torch.inf).all()
    exact = folded * torch.exp2(2.0 * inverse.double())[:, None]
    assert (exact.abs().amax(1) < 2.0**15).all()
    assert ((exact.abs().amax(1) >= 2.0**13) | (inverse == MOST)).all()
    expected = exact.float().half()
    assert torch.equal(high, expected)
    kept = expected.double()
    if precision == "ieee":
        expected_low = ((exact - kept) / LOW_UNIT).float().half()
        assert torch.equal(low, expected_low)
        kept = kept + expected_low.double() * LOW_UNIT
    lost = torch.where(exact.abs() < WHOLE[precision], (exact - kept).abs(), 0)
    needed = lost / UNIT[precision]
    assert torch.equal(units.double(), needed.ceil().sum(1))  # each is rounded up
    assert (units > 0).any() and (spread > 0 or not units.all())


@pytest.mark.parametrize("apart", [40, 70, 138])
@each_precision
def test_powers_far_from_each_other(split, precision, apart):
    """Products that are no fp32 numbers: what is lost is counted, or nothing is trusted."""
    numbers, exponents = draw(4000, 40, apart)
    numbers[::3, 2] = 0
    high, low, units, h, least = split(precision, numbers, make_scales(exponents))
    exact = multiply(numbers, exponents) / (h * h)[:, None]
    kept = high.double() + (low.double() * LOW_UNIT if precision == "ieee" else 0)
    lost = torch.where(exact.abs() < WHOLE[precision], (exact - kept).abs(), 0) / UNIT[precision]
    trusted = least < torch.inf
    assert trusted.any() and (apart < 70 or not trusted.all())
    assert (units >= lost.sum(1))[trusted].all()
    # Digits that are not counted as lost are there.
    digits = torch.where(exact.abs() < WHOLE[precision], 0, (exact - kept) / exact).abs()
    assert (digits <= (2.0**-22 if precision == "ieee" else 2.0**-11))[trusted].all()


@each_precision
def test_equal_powers_change_nothing_but_h(split, precision):
    numbers, _ = draw(2000, 10)
    plain = split(precision, numbers, torch.ones(numbers.shape))
    for exponent in (-20, 3, 17):
        scales = make_scales(torch.full(numbers.shape, exponent))
        high, low, units, h, least = split(precision, numbers, scales)
        assert torch.equal(high, plain[0]) and torch.equal(low, plain[1])
        assert torch.equal(units, plain[2]) and torch.equal(least, plain[4])
        assert torch.equal(h, plain[3] * 2.0**exponent)


@each_precision
def test_what_folded_rows_lost_counts(split, precision):
    """The sum of `least`, and all that this row lost itself."""
    numbers = torch.ones(4, WIDTH)
    least = torch.zeros(4, WIDTH)
    least[1, 3] = 2.0**-14
    least[2, 0], least[2, 7] = 2.0**-10, 2.0**5
    least[3, 5] = torch.inf
    scales = make_scales(torch.zeros(4, WIDTH, dtype=torch.long), least)
    _, _, units, _, result = split(precision, numbers, scales)
    assert units.tolist() == [0, 2, 2**5 + 2**20, ALL]
    assert result[0] == 0 and result[3] == torch.inf
    for row in (1, 2):
        assert least[row].sum() < result[row] <= 2 * least[row].sum()


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@each_precision
def test_numbers_that_are_not_finite(split, precision, value):
    numbers, exponents = draw(10, 3)
    numbers[:, 4] = value
    *_, least = split(precision, numbers, make_scales(exponents))
    assert (least == torch.inf).all()


@each_precision
def test_zeros(split, precision):
    numbers, exponents = torch.zeros(3, WIDTH), draw(3, 0)[1]
    numbers[1] = -0.0
    numbers[2, 5] = 1.5
    high, low, units, h, least = split(precision, numbers, make_scales(exponents))
    assert not units.any() and not least.any()
    assert not high[:2].any()
    assert precision == "tf32" or not low.any()
    assert (high[2] != 0).tolist() == [i == 5 for i in range(WIDTH)]
