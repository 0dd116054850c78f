"""Sixty functions that people put behind a product: each with the kinds of its operands."""

import math
from typing import NamedTuple

import torch
from torch.nn import functional

ROW, COLUMN, SCALAR, TILE = "row", "column", "scalar", "tile"
F = functional


class Case(NamedTuple):
    function: object
    operands: dict[str, str] = {}


def _alone(function):
    return Case(lambda acc: function(acc))


ACTIVATIONS = {
    "identity": _alone(lambda z: z),
    "relu": _alone(F.relu),
    "relu6": _alone(F.relu6),
    "leaky_relu": _alone(lambda z: F.leaky_relu(z, 0.2)),
    "gelu": _alone(F.gelu),
    "gelu_tanh": _alone(lambda z: F.gelu(z, approximate="tanh")),
    "silu": _alone(F.silu),
    "sigmoid": _alone(torch.sigmoid),
    "tanh": _alone(torch.tanh),
    "clamp": _alone(lambda z: z.clamp(-0.5, 1.5)),
    "hardtanh": _alone(lambda z: F.hardtanh(z, -2.0, 2.0)),
    "hardswish": _alone(F.hardswish),
    "hardsigmoid": _alone(F.hardsigmoid),
    "mish": _alone(F.mish),
    "softplus": _alone(lambda z: F.softplus(z, 2.0, 10.0)),
    "softsign": _alone(F.softsign),
    "tanhshrink": _alone(F.tanhshrink),
    "hardshrink": _alone(F.hardshrink),
    "softshrink": _alone(F.softshrink),
    "elu": _alone(lambda z: F.elu(z, 0.7)),
    "selu": _alone(F.selu),
    "celu": _alone(lambda z: F.celu(z, 1.5)),
    "log_sigmoid": _alone(F.logsigmoid),
    "threshold": _alone(lambda z: F.threshold(z, 0.1, -1.0)),
    "prelu": Case(lambda acc, slope: torch.prelu(acc, slope), {"slope": ROW}),
    "sine": _alone(torch.sin),  # of implicit representations
    "gaussian": _alone(lambda z: torch.exp(-(z**2))),
    "squared_relu": _alone(lambda z: F.relu(z).square()),
    "quick_gelu": _alone(lambda z: z * torch.sigmoid(1.702 * z)),
    "bent_identity": _alone(lambda z: (torch.sqrt(z * z + 1) - 1) / 2 + z),
}
CHAINS = {
    "bias": Case(lambda acc, bias: acc + bias, {"bias": ROW}),
    "bias_relu": Case(lambda acc, bias: F.relu(acc + bias), {"bias": ROW}),
    "bias_gelu": Case(lambda acc, bias: F.gelu(acc + bias), {"bias": ROW}),
    "scale_shift": Case(lambda acc, a, b: acc * a + b, {"a": ROW, "b": ROW}),
    "row_and_column": Case(lambda acc, a, b: acc * a * b, {"a": ROW, "b": COLUMN}),
    "temperature": Case(lambda acc, t: torch.exp(acc / t), {"t": SCALAR}),
    "soft_cap": Case(lambda acc: 30.0 * torch.tanh(acc / 30.0)),
    "norm_relu": Case(
        lambda acc, mean, rstd, gamma, beta: F.relu((acc - mean) * rstd * gamma + beta),
        {"mean": ROW, "rstd": ROW, "gamma": ROW, "beta": ROW},
    ),
    "layer_norm_apply": Case(
        lambda acc, mean, rstd, gamma, beta: (acc - mean) * rstd * gamma + beta,
        {"mean": COLUMN, "rstd": COLUMN, "gamma": ROW, "beta": ROW},
    ),
    "power": Case(lambda acc: acc**3 + 2 * acc**2 - acc),
    "where_between": Case(lambda acc: torch.where((acc > -1) & (acc < 1), acc, acc.sign())),
    "quantized": Case(lambda acc, s: torch.round(acc * s).clamp(-127, 127) / s, {"s": ROW}),
    "cosine_distance": Case(
        lambda acc, a, b: 1 - acc / (a * b).clamp_min(1e-6), {"a": COLUMN, "b": ROW}
    ),
    "squared_distance": Case(
        lambda acc, a, b: (a + b - 2 * acc).clamp_min(0), {"a": COLUMN, "b": ROW}
    ),
    "rbf": Case(
        lambda acc, a, b, g: torch.exp(-g * (a + b - 2 * acc).clamp_min(0)),
        {"a": COLUMN, "b": ROW, "g": SCALAR},
    ),
}
GATES = {
    "residual": Case(lambda acc, r: acc + r, {"r": TILE}),
    "bias_residual": Case(lambda acc, bias, r: acc + bias + r, {"bias": ROW, "r": TILE}),
    "residual_relu": Case(lambda acc, bias, r: F.relu(acc + bias + r), {"bias": ROW, "r": TILE}),
    "swiglu": Case(lambda acc, up: F.silu(acc) * up, {"up": TILE}),
    "geglu": Case(lambda acc, bias, up: F.gelu(acc + bias) * up, {"bias": ROW, "up": TILE}),
    "reglu": Case(lambda acc, up: up * F.relu(acc), {"up": TILE}),
    "sigmoid_gate": Case(
        lambda acc, bias, h: torch.sigmoid(acc + bias) * h, {"bias": ROW, "h": TILE}
    ),
    "highway": Case(
        lambda acc, bias, x, h: torch.lerp(x, h, torch.sigmoid(acc + bias)),
        {"bias": ROW, "x": TILE, "h": TILE},
    ),
    "gru_state": Case(
        lambda acc, gx, z, h: (1 - z) * torch.tanh(gx + acc) + z * h,
        {"gx": TILE, "z": TILE, "h": TILE},
    ),
    "layer_scale": Case(
        lambda acc, bias, gamma, r: r + gamma * (acc + bias), {"bias": ROW, "gamma": ROW, "r": TILE}
    ),
    "drop_path": Case(lambda acc, keep, r: r + keep * acc, {"keep": COLUMN, "r": TILE}),
    "masked": Case(
        lambda acc, mask: torch.where(mask > 0, acc, torch.full_like(acc, -1e30)), {"mask": TILE}
    ),
}
MODELS = {
    # StyleGAN2: equalized learning rate, leaky ReLU, gain.
    "stylegan_mapping": Case(
        lambda acc, bias: F.leaky_relu(acc * 0.01 + bias * 0.01, 0.2) * math.sqrt(2), {"bias": ROW}
    ),
    # Cross network of DLRM: x0 * (W x + b) + x.
    "dcn_cross": Case(
        lambda acc, bias, x0, x: x0 * (acc + bias) + x, {"bias": ROW, "x0": TILE, "x": TILE}
    ),
    # FiLM: each row of the batch has its own scale and shift of the columns.
    "film": Case(
        lambda acc, bias, s, t: F.relu((acc + bias) * (1 + s) + t),
        {"bias": ROW, "s": TILE, "t": TILE},
    ),
    "siren": Case(lambda acc, bias: torch.sin(30 * (acc + bias)), {"bias": ROW}),
    "shifted_softplus": Case(
        lambda acc, bias: F.softplus(acc + bias) - math.log(2.0), {"bias": ROW}
    ),
    "ssp_cutoff": Case(
        lambda acc, bias, c: (F.softplus(acc + bias) - math.log(2.0)) * c,
        {"bias": ROW, "c": COLUMN},
    ),
    # Two results: the sum that a block carries on, and what its activation makes of it.
    "pre_activation": Case(
        lambda acc, bias, r: (acc + bias + r, F.silu(acc + bias + r)), {"bias": ROW, "r": TILE}
    ),
}
CASES = ACTIVATIONS | CHAINS | GATES | MODELS
