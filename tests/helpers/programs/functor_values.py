"""What functors are given on the host, and how their results are compared."""

import math

import torch

NUMBERS = (0.0, -0.0, 1.0, -2.5, 3e-3, 1e5, math.inf, -math.inf, math.nan)


def assert_same(ours, expected, rtol=1e-6):
    torch.testing.assert_close(
        ours, torch.tensor(expected, dtype=torch.float64).float(), rtol=rtol, atol=0, equal_nan=True
    )


def quantise(kind, value):
    """What a vector of this kind holds of a value."""
    dtype = getattr(torch, kind) if kind in ("float16", "bfloat16") else torch.float32
    return torch.tensor(value, dtype=dtype).double().item()
