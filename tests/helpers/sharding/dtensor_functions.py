"""Functions with DTensors beside the plain expressions on whole tensors: CASES for processes.py."""

import functools
import itertools

import torch
from dtensor_shards import close, cut, make_mesh, whole
from norm_functions import FUNCTIONS, K, M, N, call, make_leaves, make_statistics
from plain import run_plain
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import functional as F

from cutlass_fused import functional

CASES = {}
VECTORS = ("bias", "scale", "gamma", "beta", "running_mean", "running_var")
# The placements by the names of the arguments, all others whole.
CUTS = {
    "columns": dict.fromkeys(("weight", *VECTORS), Shard(0)),
    "rows": {"x": Shard(0)},
    "inner": {"x": Shard(1), "weight": Shard(1)},
    "whole": {},
    "mixed": {"x": Shard(1), "bias": Shard(0), "gamma": Shard(0), "running_var": Shard(0)},
    "both": {"x": Shard(0), "weight": Shard(0), "running_mean": Shard(0)},
}


def place(name, has_product, placements):
    if name == "x" and not has_product and placements is CUTS["columns"]:
        return Shard(1)
    return placements.get(name, Replicate())


def cut_all(leaves, placements, **options):
    has_product = "weight" in leaves
    shards = dict(leaves)
    for name, value in leaves.items():
        if isinstance(value, torch.Tensor):
            is_one = value.numel() == 1
            placement = Replicate() if is_one else place(name, has_product, placements)
            shards[name] = cut(value, placement, **options)
    return shards


def run_linear(x, weight, bias):
    return functional.linear(x, weight, bias, out_dtype=torch.float64)


def run_leaky_relu(x, weight, bias, scale):
    return functional.linear_scale_leaky_relu(x, weight, bias, scale, -0.3)


# What is called with x, weight, bias, scale, as far as it takes them, beside what that stands for.
SIMPLE = {
    "linear": (run_linear, F.linear, 3),
    "linear_scale_leaky_relu": (
        run_leaky_relu,
        functools.partial(run_plain, negative_slope=-0.3),
        4,
    ),
    "softmax": (functional.softmax, functools.partial(F.softmax, dim=-1), 1),
}


def make_simple(count, shape=(M, K), **options):
    leaves = {"x": torch.randn(*shape), "weight": torch.randn(N, K), "bias": torch.randn(N)}
    leaves["scale"] = torch.randn(N)
    leaves = dict(list(leaves.items())[:count]) | options
    return {
        name: value.double().requires_grad_() if isinstance(value, torch.Tensor) else value
        for name, value in leaves.items()
    }


def compare(ours, plain, leaves, shards, is_silent=False):
    """y and all gradients; is_silent: neither pass sends anything."""
    expected = plain(leaves)
    grad = torch.randn_like(expected)
    expected.backward(grad)
    with torch.no_grad():
        close([ours(shards)], [expected])
    communication = CommDebugMode()
    with communication:
        y = ours(shards)
        y.backward(cut(grad, *(Replicate() if p.is_partial() else p for p in y.placements[-1:])))
    assert not is_silent or communication.get_total_counts() == 0, communication.get_comm_counts()
    close([y], [expected])
    asked = [name for name, t in leaves.items() if isinstance(t, torch.Tensor) and t.requires_grad]
    close([shards[name].grad for name in asked], [leaves[name].grad for name in asked])
    return y


def check_simple(name, placements, *, placement=None, mesh=None, **options):
    ours, plain, count = SIMPLE[name]
    leaves = make_simple(count, **options)
    shards = cut_all(leaves, CUTS[placements], mesh=mesh)
    y = compare(
        lambda t: ours(*t.values()),
        lambda t: plain(*t.values()),
        leaves,
        shards,
        is_silent=placement is not None,
    )
    assert placement is None or y.placements[-1] == placement, y.placements


# What needs no communication, and how y lies then.
SILENT = {"columns": Shard(1), "rows": Shard(0), "whole": Replicate()}
for name, placements in itertools.product(SIMPLE, CUTS):
    silent = SILENT.get(placements)
    if name == "softmax" and placements == "columns":
        silent = None
    if (name, placements) == ("linear", "inner"):
        silent = Partial()
    if name == "softmax" and placements == "both":
        silent = Shard(0)
    CASES[f"{name}-{placements}"] = functools.partial(
        check_simple, name, placements, placement=silent
    )
CASES["linear-inner-no bias"] = functools.partial(
    check_simple, "linear", "inner", placement=Partial(), bias=None
)
CASES["linear_scale_leaky_relu-columns-one element"] = functools.partial(
    check_simple,
    "linear_scale_leaky_relu",
    "columns",
    placement=Shard(1),
    scale=torch.tensor([1.25]),
)
CASES["linear_scale_leaky_relu-columns-number"] = functools.partial(
    check_simple, "linear_scale_leaky_relu", "columns", placement=Shard(1), scale=1.5
)


def check_sequences(name, dim):
    """Cut along any of their dimensions."""
    ours, plain, count = SIMPLE[name]
    leaves = make_simple(count, shape=(2, 3, K))
    shards = cut_all(leaves, {"x": Shard(dim)})
    compare(lambda t: ours(*t.values()), lambda t: plain(*t.values()), leaves, shards, dim < 2)


for name, dim in itertools.product(SIMPLE, range(3)):
    CASES[f"{name}-sequences {dim}"] = functools.partial(check_sequences, name, dim)


def check_mesh(name, *shape):
    """A mesh of two dimensions, along one of which everything is whole or cut in one piece."""
    mesh = make_mesh(*shape)
    ours, plain, count = SIMPLE[name]
    leaves = make_simple(count)
    rows, columns = (Shard(0), Replicate()), (Replicate(), Shard(0))
    shards = {
        name: cut(value, *(rows if name == "x" else columns), mesh=mesh)
        for name, value in leaves.items()
    }
    with torch.no_grad():
        y = ours(*shards.values())
    expected = Shard(1) if count > 1 else Replicate()
    assert y.placements == (Shard(0), expected)
    y, z = ours(*shards.values()), plain(*leaves.values())
    close([y], [z])
    y.square().sum().backward(), z.square().sum().backward()
    close([t.grad for t in shards.values()], [t.grad for t in leaves.values()])


for name, shape in itertools.product(SIMPLE, ((2, 1), (1, 2))):
    CASES[f"{name}-mesh {shape}"] = functools.partial(check_mesh, name, *shape)


def check_norm(function, training, placements, silent):
    leaves, statistics = make_leaves(function), make_statistics()
    cuts = [CUTS[placements].get(name, Replicate()) for name in ("running_mean", "running_var")]
    cut_statistics = [cut(t, placement) for t, placement in zip(statistics, cuts, strict=True)]
    shards = cut_all(leaves, CUTS[placements])
    placed = [t.placements for t in cut_statistics]
    if not training:
        y = compare(
            lambda t: call(function.ours, t, cut_statistics, False),
            lambda t: call(function.plain, t, statistics, False),
            leaves,
            shards,
            silent is not None,
        )
        assert silent is None or y.placements == (silent,)
        return
    counted = cut(torch.tensor(0))
    options = {"num_batches_tracked": counted}
    # Once without gradients, then with: both move the statistics.
    with torch.no_grad():
        y = call(function.ours, shards, cut_statistics, True, **options)
        close([y], [call(function.plain, leaves, statistics, True)])
    close(cut_statistics, statistics)
    communication = CommDebugMode()
    with communication:
        y = call(function.ours, shards, cut_statistics, True, **options)
        grad = torch.arange(1.0 * y.numel()).reshape(y.shape).double()
        y.backward(cut(grad, *y.placements))
    if silent is not None:
        assert communication.get_total_counts() == 0, communication.get_comm_counts()
        assert y.placements == (silent,)
    expected = call(function.plain, leaves, statistics, True)
    expected.backward(grad)
    close([y, *cut_statistics], [expected, *statistics])
    close([t.grad for t in shards.values()], [t.grad for t in leaves.values()])
    assert [t.placements for t in cut_statistics] == placed
    assert whole(counted) == 2


for function, training, placements in itertools.product(FUNCTIONS, (False, True), CUTS):
    silent = SILENT.get(placements)
    if placements == "rows" and training:
        silent = None  # the statistics are those of all rows
    if placements == "columns" and "softmax" in str(function):
        silent = None
    mode = "train" if training else "eval"
    CASES[f"{function}-{mode}-{placements}"] = functools.partial(
        check_norm, function, training, placements, silent
    )
