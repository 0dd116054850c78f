"""How numbers are split into fp16 ones, and what is counted of what they lose: the code of the
kernels, run on the host, against float64."""

import pytest
import torch
from host_program import compile_host_program

WIDTH = 8  # numbers of a piece
LOW_UNIT = 2.0**-11
WHOLE = {"ieee": 2.0**-13, "tf32": 2.0**-14}  # a scaled number below loses digits
UNIT = {"ieee": 2.0**-52, "tf32": 2.0**-41}  # in which losses are counted, each rounded up
LEAST_SUM = 15 + 22, 15 + 11  # a sum must be 2^this times what a row lost
INFINITY = 0x7F800000
each_precision = pytest.mark.parametrize("precision", WHOLE)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """split(precision, largest, numbers) -> (hi, lo, units, scale as an integer) of (count, 8)
    numbers; `largest` are the magnitudes of the largest numbers of their rows."""
    folder = tmp_path_factory.mktemp("split_numbers")
    program = compile_host_program(
        "kernels/split_numbers", folder, options=["-Wno-unknown-pragmas"]
    )

    def run(precision, largest, numbers):
        has_low = int(precision == "ieee")
        bits = (numbers.view(torch.int32).long() & 0xFFFFFFFF).tolist()
        lines = [
            " ".join(map(str, (has_low, first, *piece)))
            for first, piece in zip(largest.tolist(), bits, strict=True)
        ]
        results = torch.tensor([list(map(int, line.split())) for line in program(lines)])
        halves = to_halves(results[:, :-2]).reshape(len(lines), -1, WIDTH)
        return halves[:, 0], halves[:, -1], results[:, -2], results[:, -1]

    return run


def to_floats(bits):
    return bits.to(torch.int32).view(torch.float32)


def to_halves(bits):
    return bits.to(torch.int16).view(torch.float16)


def split_in_float64(precision, largest, numbers):
    """hi, lo, h, and the units that are lost."""
    exponent = torch.frexp(to_floats(largest).double()).exponent.long() - 1
    inverse = torch.where(largest > 0, (14 - exponent) // 2, 0)
    exact = torch.ldexp(numbers.double(), 2 * inverse[:, None])
    high = exact.float().half()
    low = ((exact.float() - high.float()) / LOW_UNIT).half()
    kept = high.double() + (low.double() * LOW_UNIT if precision == "ieee" else 0)
    lost = torch.where(exact.abs() < WHOLE[precision], (exact - kept).abs(), 0)
    units = (lost / UNIT[precision]).ceil().sum(1).long()
    return high, low, torch.ldexp(torch.ones(len(largest)), -inverse), units


def list_largest():
    """Magnitudes of finite numbers: both ends of every binade, and something between."""
    normal = torch.arange(1, 255)[:, None] << 23 | torch.tensor([0, 1, 0x2AAAAA, 0x7FFFFF])
    subnormal = 2 ** torch.arange(23)
    return torch.cat([normal.flatten(), subnormal, 2 * subnormal - 1]).unique()


def check(split, precision, largest, numbers):
    """Returns the units that are lost."""
    high, low, units, scale = split(precision, largest, numbers)
    expected_high, expected_low, h, expected_units = split_in_float64(precision, largest, numbers)
    assert torch.equal(high, expected_high)
    if precision == "ieee":
        assert torch.equal(low, expected_low)
    assert torch.equal(units, expected_units)
    assert torch.equal(to_floats(scale & INFINITY), h)
    # The power of two above.
    least = to_floats((scale & 0x7FFFFF) << 8).double()
    needed = units * UNIT[precision] * 2.0 ** LEAST_SUM[precision == "tf32"]
    assert torch.equal(least > 0, units > 0)
    assert ((least > needed) | (units == 0)).all() and (least <= 2 * needed).all()
    return units


@each_precision
def test_numbers_about_the_one_from_which_nothing_is_lost(split, precision):
    """One in a piece of others that lose nothing: it alone says whether any does."""
    largest = list_largest()
    exponent = torch.frexp(to_floats(largest).double()).exponent.long() - 1
    whole = torch.full(largest.shape, WHOLE[precision], dtype=torch.float64)
    whole = torch.ldexp(whole, -2 * ((14 - exponent) // 2))
    first = whole.float().view(torch.int32).long()
    lost = 0
    for step in (-0x800001, -0x800000, -0x7FFFFF, -3, -2, -1, 0, 1, 2, 0x7FFFFF, 0x800000):
        number = (first + step).clamp(min=0).minimum(largest)
        for place, sign in ((0, 0), (5, 1)):
            numbers = to_floats(largest)[:, None].repeat(1, WIDTH)
            numbers[:, place] = to_floats(number) * (-1) ** sign
            units = check(split, precision, largest, numbers)
            assert step < 0 or not units.any()
            lost += (units > 0).sum()
    assert lost > len(largest)


@each_precision
def test_numbers_of_all_magnitudes(split, precision):
    generator = torch.Generator().manual_seed(0)
    largest = list_largest().repeat(8)
    share = torch.rand(len(largest), WIDTH, generator=generator, dtype=torch.float64)
    for power in (1, 4, 16):
        bits = (largest[:, None] * share**power).long()
        signs = torch.randint(0, 2, bits.shape, generator=generator) * 2 - 1
        assert check(split, precision, largest, to_floats(bits) * signs).any()


@each_precision
def test_zeros_and_what_is_least(split, precision):
    """Zeros of both signs lose nothing; what the scaling itself loses counts as one unit."""
    largest = list_largest()
    numbers = torch.zeros(len(largest), WIDTH)
    numbers[:, 1] = -0.0
    assert not check(split, precision, largest, numbers).any()
    numbers[:, 2] = 2.0**-149
    units = check(split, precision, largest, numbers)
    assert units[largest == 0x7F7FFFFF] == 1 and units[largest == 1] == 0


@each_precision
def test_rows_that_are_not_finite(split, precision):
    largest = torch.tensor([INFINITY, INFINITY, INFINITY + 1, 0x7FFFFFFF])
    numbers = torch.ones(len(largest), WIDTH)
    numbers[1:, 3] = torch.tensor([-torch.inf, torch.nan, torch.nan])
    *_, scale = split(precision, largest, numbers)
    assert (scale == (0x3F800000 | INFINITY >> 8)).all()
