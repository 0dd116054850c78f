"""The epilogue functors, compiled for the host, against the reference in float64."""

import itertools
import math

import pytest
import torch
from functor_values import NUMBERS, assert_same, quantise
from host_program import compile_host_program


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    program = compile_host_program("evaluate_epilogue", tmp_path_factory.mktemp("epilogue"))
    return lambda lines: torch.tensor([float(y) for y in program(lines)])


def test_bias(run):
    """Every bit of the sum in fp32, signs of zeros too."""
    kinds = ("float32", "float16", "bfloat16", "one", "absent")
    cases = list(itertools.product(NUMBERS, kinds, (0.0, -0.0, 0.1, -7.0, -1e5)))
    ours = run([f"bias {acc} {kind} {bias}" for acc, kind, bias in cases])
    acc = torch.tensor([case[0] for case in cases])
    bias = torch.tensor([quantise(kind, bias) for _, kind, bias in cases])
    assert list(map(str, ours.tolist())) == list(map(str, (acc + bias).tolist()))


def test_scale_leaky_relu(run):
    slopes, scales = (0.1, 0.0, -0.5, 1.0, 2.0), (1.0, -3.0, 0.0)
    cases = list(itertools.product(NUMBERS, scales, slopes, (1.0, -0.25)))
    ours = run(
        [
            f"scale_leaky_relu {acc} float32 0.5 bfloat16 {scale} {multiplier} {slope}"
            for acc, scale, slope, multiplier in cases
        ]
    )
    v = torch.tensor([(acc + 0.5) * scale * m for acc, scale, _, m in cases], dtype=torch.float64)
    expected = [
        torch.nn.functional.leaky_relu(value, case[2]).item()
        for value, case in zip(v, cases, strict=True)
    ]
    assert_same(ours, expected)


STRIDES = ((5, 1, 7), (0, 2, 0), (1, 3, 0), (0, 1, 5))


@pytest.mark.parametrize("strides", STRIDES)
def test_add_scaled(run, strides):
    """Of a matrix of any strides: at a row and in a batch, too."""
    scales = (0.0, 1.0, -1.0, 0.5, 2.0)
    cases = list(itertools.product(NUMBERS, (0.75, -0.0, math.inf, math.nan), scales, scales))
    where = " ".join(map(str, strides))
    ours = run([f"add_scaled {acc} {where} {c} {alpha} {beta}" for acc, c, alpha, beta in cases])
    expected = [alpha * acc + (0.0 if beta == 0 else beta * c) for acc, c, alpha, beta in cases]
    assert_same(ours, expected)


def test_nan_in_c_is_nothing_where_beta_is_0(run):
    assert (
        run(["add_scaled -3 0 1 0 nan 0.5 0", "add_scaled -3 absent 0 0.5 0"]).tolist()
        == [-1.5] * 2
    )
    assert run(["add_scaled -3 0 1 0 nan 0.5 1"]).isnan().all()


def test_add_scaled_rounds_the_sum_once(run):
    """alpha * acc is rounded, and then the sum with beta * c."""
    acc, c = 1 + 2.0**-23, 1 - 2.0**-24
    (y,) = run([f"add_scaled {acc!r} 0 1 0 {c!r} 1 {-1 - 2.0**-23!r}"]).tolist()
    assert y == acc - c * (1 + 2.0**-23) != 0


def test_scales_of_rows_are_taken_back_in_front_of_what_is_added(run):
    ours = run([f"unscaled.add_scaled {acc} 0 1 0 0.5 {2.0**5} 0" for acc in (3.0, -1.0)])
    # The same row on both sides: (h * h) twice.
    assert ours.tolist() == [2 * acc * 2.0**20 - 0.5 for acc in (3.0, -1.0)]
    missing = run(["unscaled.add_scaled 3 0 1 0 0.5 1 4", "unscaled.add_scaled 3 0 1 0 0.5 1 0"])
    assert missing[0].isnan() and missing[1] == 5.5


SCALES = (-81, -40, 0, 7, 57)  # exponents of h, from those of the largest row to the smallest
SUMS = (0.0, 2.0**-12, -3.0, 2.0**30)


def test_scales_of_rows_are_taken_back(run):
    """Twice h_x * h_w, since its square may be beyond fp32 where the result is not."""
    cases = list(itertools.product(SUMS, SCALES, SCALES))
    ours = run([f"unscaled {acc} {2.0**x} {2.0**w} 0 0" for acc, x, w in cases])
    expected = [acc * 2.0 ** (x + w) * 2.0 ** (x + w) for acc, x, w in cases]
    assert_same(ours, expected, rtol=0)
    assert ours.isinf().any() and (ours == 2.0**-12 * 2.0**128).any()


LEASTS = (0.0, 2.0**-60, 4.0, 2.0**20, math.inf)


def test_sums_that_are_too_small_for_what_rows_lost_are_missing(run):
    """Not larger than the two together, also where they are infinite; of 0 nothing is missing."""
    cases = list(itertools.product((*NUMBERS, 8.0, 8.5, 2.0**-59), LEASTS, LEASTS))
    ours = run([f"unscaled {acc} 1 4 {x} {w}" for acc, x, w in cases])
    missing = [x + w > 0 and not abs(acc) > x + w for acc, x, w in cases]
    expected = [
        math.nan if lost else acc * 16 for lost, (acc, *_) in zip(missing, cases, strict=True)
    ]
    assert_same(ours, expected)
    assert True in missing and False in missing


def test_scale_batch_norm(run):
    cases = list(itertools.product(NUMBERS, (1.0, -0.5), (0.3, -20.0), (1e-3, 4.0), (1e-5, 1e-2)))
    ours = run(
        [
            f"scale_batch_norm {acc} float16 0.5 float32 {scale} float32 {mean} float32 {var} "
            f"one 1.5 absent -0.75 {eps}"
            for acc, scale, mean, var, eps in cases
        ]
    )
    expected = [
        ((acc + 0.5) * scale - mean) / math.sqrt(var + eps) * 1.5 - 0.75
        for acc, scale, mean, var, eps in cases
    ]
    # Where the centred value is small beside the mean, fp32 keeps fewer relative digits.
    torch.testing.assert_close(
        ours.double(),
        torch.tensor(expected, dtype=torch.float64),
        rtol=1e-5,
        atol=2e-4,
        equal_nan=True,
    )


def test_scale_batch_norm_keeps_its_digits_at_a_large_mean(run):
    """At mean/std = 1e4, acc - mean is exact in fp32; a folded shift would lose it."""
    mean, std = 1e4, 1.0
    accs = [mean + step / 1024 for step in range(-2048, 2048, 37)]
    ours = run(
        [
            f"scale_batch_norm {acc} absent 0 absent 1 float32 {mean} float32 {std**2} absent 0.3 "
            f"absent 0 0"
            for acc in accs
        ]
    )
    assert_same(ours, [(acc - mean) / std * quantise("float32", 0.3) for acc in accs])
