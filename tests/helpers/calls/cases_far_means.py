"""Columns of z whose mean is far from 0 in the measure of their deviation, in 16 bits."""

from __future__ import annotations

import torch
from calls import Call
from cases import Numerics, Shape, draw_normal, draw_uniform
from cases_statistics import make_statistics_call

# Mean / deviation, and the deviation: in the range of fp16, and far below the root of eps.
FAR = ((1.0, 1.0), (1e2, 1.0), (1e4, 1.0), (1e6, 1e-2), (1e6, 1e-6), (1e2, 1e-6))
# The mean comes from a bias of inputs that are dead or tiny, or from inputs that are the same in
# all rows.
SOURCES = ("bias", "x")


def make_far_call(
    op: str,
    shape: Shape,
    numerics: Numerics,
    ratio: float,
    deviation: float,
    source: str = "bias",
    device="cpu",
    eps: float = 1e-5,
) -> Call:
    """Every eighth column is constant, every ninth has the mean 0."""
    generator = torch.Generator(device).manual_seed(0)
    call = make_statistics_call(op, shape, numerics, device, scale="none", eps=eps)
    n, k, dtype = shape.n, shape.k, numerics.dtype
    mean = draw_uniform(n, generator=generator, low=2.0, high=3.0) * (ratio * deviation)
    mean = mean * draw_normal(n, generator=generator).sign()
    mean[8::9] = 0.0
    x = deviation * draw_normal(shape.m, k, generator=generator)
    weight = draw_normal(n, k, generator=generator) / k**0.5
    weight[7::8] = 0.0
    if source == "x":
        x[:, 0], weight[:, 0] = 1.0, mean
        mean = 0.0 * mean
    return call.change(x=x.to(dtype), weight=weight.to(dtype), bias=mean.to(dtype))
