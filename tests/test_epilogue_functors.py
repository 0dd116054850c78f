"""The epilogue functors, compiled for the host, against the reference in float64."""

import itertools
import math

import pytest
import torch
from host_program import compile_host_program

NUMBERS = (0.0, -0.0, 1.0, -2.5, 3e-3, 1e5, math.inf, -math.inf, math.nan)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    program = compile_host_program("evaluate_epilogue", tmp_path_factory.mktemp("epilogue"))
    return lambda lines: torch.tensor([float(y) for y in program(lines)])


def assert_same(ours, expected, rtol=1e-6):
    torch.testing.assert_close(
        ours, torch.tensor(expected, dtype=torch.float64).float(), rtol=rtol, atol=0, equal_nan=True
    )


def quantise(kind, value):
    """What a vector of this kind holds of a value."""
    dtype = getattr(torch, kind) if kind in ("float16", "bfloat16") else torch.float32
    return torch.tensor(value, dtype=dtype).double().item()


def test_bias(run):
    kinds = ("float32", "float16", "bfloat16", "one", "absent")
    cases = list(itertools.product(NUMBERS, kinds, (0.0, 0.1, -7.0)))
    ours = run([f"bias {acc} {kind} {bias}" for acc, kind, bias in cases])
    assert_same(ours, [acc + quantise(kind, bias) for acc, kind, bias in cases])


def test_what_serves_bias_on_sm90_gives_its_bits(run):
    """Signs of zeros too, which equal each other."""
    cases = itertools.product(NUMBERS, ("float32", "bfloat16", "absent"), (0.0, -0.0, 0.1, -1e5))
    lines = [f" {acc} {kind} {bias}" for acc, kind, bias in cases]
    ours, expected = (run([name + line for line in lines]) for name in ("bias_on_sm90", "bias"))
    assert list(map(str, ours.tolist())) == list(map(str, expected.tolist()))


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
