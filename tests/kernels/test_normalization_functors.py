"""The maps in front of a row softmax, and of a batch norm alone, compiled for the host."""

import itertools
import math

import pytest
import torch
from functor_values import NUMBERS, assert_same, quantise
from host_program import compile_host_program

KINDS = ("float32", "float16", "bfloat16", "one", "absent")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(lines) -> y and factor of each"""
    program = compile_host_program("evaluate_normalization", tmp_path_factory.mktemp("normal"))
    return lambda lines: torch.tensor([[float(y) for y in s.split()] for s in program(lines)]).T


def test_identity(run):
    y, factor = run([f"identity {x}" for x in NUMBERS])
    assert_same(y, list(NUMBERS), rtol=0)
    assert (factor == 1).all()


def test_scale_alone_is_a_factor(run):
    y, factor = run([f"scaled {x} one 3" for x in NUMBERS])
    assert_same(y, list(NUMBERS), rtol=0)
    assert (factor == 3).all()


def test_statistics_of_a_batch(run):
    """Each operand in each kind of vector."""
    cases = list(itertools.product(NUMBERS, KINDS, (0.5, -20.0), (1.5, -0.25)))
    numbers = (0.3, -0.7, 3.0)  # of a, d and scale, in kinds that differ from case to case
    lines, expected = [], []
    for place, (x, kind, mean, a_sign) in enumerate(cases):
        kinds = [KINDS[(place + step) % len(KINDS)] for step in range(3)]
        a, d, scale = (quantise(k, v) for k, v in zip(kinds, numbers, strict=True))
        vectors = " ".join(f"{k} {v}" for k, v in zip(kinds, numbers, strict=True))
        lines.append(f"batch {x} {kind} {mean * a_sign} {vectors}")
        expected.append(((x - quantise(kind, mean * a_sign)) * a + d) * scale)
    y, factor = run(lines)
    # Where the terms cancel, fp32 keeps fewer relative digits.
    torch.testing.assert_close(
        y.double(), torch.tensor(expected).double(), rtol=1e-6, atol=1e-5, equal_nan=True
    )
    assert (factor == 1).all()


def test_plain_statistics_of_a_batch(run):
    """With one scale for all columns, which is a factor of all."""
    cases = list(itertools.product(NUMBERS, (0.5, -20.0), ("one", "absent"), (3.0, -0.25)))
    lines = [
        f"uniform {x} plain {mean} plain 0.3 plain -0.7 {kind} {scale}"
        for x, mean, kind, scale in cases
    ]
    y, factor = run(lines)
    expected = [(x - mean) * quantise("float32", 0.3) - 0.7 for x, mean, *_ in cases]
    torch.testing.assert_close(
        y.double(), torch.tensor(expected).double(), rtol=1e-6, atol=1e-5, equal_nan=True
    )
    assert_same(factor, [scale for *_, scale in cases])


def test_which_statistics_are_plain(run):
    """fp32 elements side by side, and no scale for each column."""
    vectors = ["plain 1"] * 3
    lines = [
        f"uniform 1 {' '.join([*vectors[:place], f'{kind} 1', *vectors[place + 1 :]])} one 1"
        for place, kind in itertools.product(range(3), KINDS)
    ]
    lines += [f"uniform 1 {' '.join(vectors)} {kind} 1" for kind in ("plain", "float32", "float16")]
    y, _ = run(lines)
    assert y.isnan().all()


def test_running_statistics(run):
    cases = list(itertools.product(NUMBERS, (0.3, -20.0), (1e-3, 4.0), (1e-5, 1e-2)))
    lines = [
        f"running {x} float16 {mean} bfloat16 1.5 float32 {var} {eps} one -0.75"
        for x, mean, var, eps in cases
    ]
    expected = [
        (x - quantise("float16", mean)) / math.sqrt(var + eps) * 1.5 - 0.75
        for x, mean, var, eps in cases
    ]
    y, factor = run(lines)
    torch.testing.assert_close(
        y.double(), torch.tensor(expected).double(), rtol=1e-5, atol=2e-4, equal_nan=True
    )
    assert (factor == 1).all()


def test_infinite_scale(run):
    """A factor of its own: multiplied into a and d it would make NaN of these."""
    y, _ = run([f"batch {x} absent 1 absent 2 absent -3 float32 inf" for x in (5.0, 1.0)])
    assert y.tolist() == [math.inf, -math.inf]


LARGE_MEANS = {
    "batch": "float32 {} absent 0.3 absent 0 absent 1",
    "uniform": "plain {} plain 0.3 plain 0 absent 1",
    "running": "float32 {} absent 0.3 absent 1 0 absent 0",
}


@pytest.mark.parametrize("name", LARGE_MEANS)
def test_large_mean_keeps_its_digits(run, name):
    """At mean/std = 1e4, x - mean is exact in fp32; a folded shift would lose it."""
    mean = 1e4
    xs = [mean + step / 1024 for step in range(-2048, 2048, 37)]
    y, _ = run([f"{name} {x} {LARGE_MEANS[name].format(mean)}" for x in xs])
    assert_same(y, [(x - mean) * quantise("float32", 0.3) for x in xs])
