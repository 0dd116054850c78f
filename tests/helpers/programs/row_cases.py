"""Functions that add and compare along rows: what they are of, and PyTorch's own beside them."""

import torch
import torch.nn.functional as F
from program_cases import COLUMN, ROW, TILE, Case
from traced import find_key

from cutlass_fused.programs.traced import TracedFunction


def _chain(acc, bias):
    """As models have it that end in a log-sum-exp."""
    z = torch.logsumexp(acc + bias, 1, keepdim=True)
    return F.mish(F.leaky_relu(F.leaky_relu(z)))


def _centred_groups(acc):
    groups = acc.unflatten(1, (4, -1))
    return (groups - groups.mean(-1, keepdim=True)).flatten(1)


def _stages(acc, bias):
    """Pooled, scaled, and one number of each row."""
    pooled = F.avg_pool1d((acc + bias).unsqueeze(1), 4).squeeze(1)
    return (F.gelu(pooled) * 2.0).amax(1)


def _three(acc, bias):
    z = acc + bias
    return z, z.softmax(1), z.logsumexp(1)


# N is a multiple of 16 in each.
ROW_CASES = {
    "sum": Case(lambda acc: acc.sum(1), {}),
    "mean": Case(lambda acc, scale: (acc * scale).mean(-1, keepdim=True), {"scale": COLUMN}),
    "amax": Case(lambda acc: acc.amax(1), {}),
    "amin": Case(lambda acc, bias: (acc + bias).amin(1, keepdim=True), {"bias": ROW}),
    "max": Case(lambda acc: acc.max(dim=1).values, {}),
    "min": Case(lambda acc: acc - acc.min(dim=1, keepdim=True).values, {}),
    "max_of_groups": Case(
        lambda acc, bias: F.relu(acc + bias).unflatten(1, (-1, 4)).max(2).values.max(1).values,
        {"bias": ROW},
    ),
    "log_sum_exp": Case(lambda acc: acc.logsumexp(1), {}),
    "softmax": Case(lambda acc, bias: (acc + bias).softmax(-1), {"bias": ROW}),
    "log_softmax": Case(lambda acc, scale: F.log_softmax(acc * scale, 1), {"scale": COLUMN}),
    "softmin": Case(lambda acc: F.softmin(acc, 1), {}),
    "layer_norm": Case(
        lambda acc, w, b: F.layer_norm(acc, acc.shape[1:], w, b), {"w": ROW, "b": ROW}
    ),
    "residual_norm": Case(
        lambda acc, bias, x: F.gelu(F.layer_norm(acc + bias + x, acc.shape[1:])),
        {"bias": ROW, "x": TILE},
    ),
    "rms_norm": Case(lambda acc, w: F.rms_norm(acc, acc.shape[1:], w, 1e-6), {"w": ROW}),
    "group_norm": Case(lambda acc, w, b: F.silu(F.group_norm(acc, 8, w, b)), {"w": ROW, "b": ROW}),
    "group_norm_mean": Case(
        lambda acc, bias: F.group_norm(acc + bias, 4).mean(1, keepdim=True), {"bias": ROW}
    ),
    "centred_groups": Case(_centred_groups, {}),
    "group_softmax": Case(
        lambda acc: acc.view(acc.shape[0], -1, 2).softmax(-1).reshape(acc.shape), {}
    ),
    "window_maximum": Case(lambda acc: F.max_pool1d(acc, 2), {}),
    "adaptive_maximum": Case(lambda acc: F.adaptive_max_pool1d(acc, 4), {}),
    "window_mean": Case(lambda acc, bias: F.avg_pool1d(acc + bias, 16), {"bias": ROW}),
    "adaptive_mean": Case(lambda acc, bias: F.adaptive_avg_pool1d(acc + bias, 4), {"bias": ROW}),
    "group_sums": Case(
        lambda acc, bias: F.silu((acc + bias).unflatten(1, (4, -1)).square().sum(-1)), {"bias": ROW}
    ),
    "group_largest": Case(lambda acc: acc.unflatten(1, (4, -1)).amax(-1) * 2.0, {}),
    "stages": Case(_stages, {"bias": ROW}),
    "chain": Case(_chain, {"bias": ROW}),
    "variance": Case(lambda acc: acc.var(1), {}),
    "standardized": Case(
        lambda acc: (acc - acc.mean(1, keepdim=True)) / (acc.std(1, keepdim=True) + 1e-5), {}
    ),
    "normalize": Case(lambda acc: F.normalize(acc, dim=1), {}),
    "cosine": Case(lambda acc, w: F.cosine_similarity(acc, w.expand_as(acc)), {"w": ROW}),
    "three": Case(_three, {"bias": ROW}),
    "sum_of_operand": Case(lambda acc, w: acc * w.softmax(0), {"w": ROW}),
}
# Those whose gradient is PyTorch's own ops: along an operand.
COMPOSED = ("sum_of_operand",)


def find_row_program(name, n):
    case = ROW_CASES[name]
    return TracedFunction(name, case.function).find(find_key(case), n)


def find_row_gradient(name, n):
    case = ROW_CASES[name]
    function = TracedFunction(name, case.function)
    needed = (True,) * (1 + len(case.operands))
    return function.find_gradient(find_key(case), needed, n=n)
