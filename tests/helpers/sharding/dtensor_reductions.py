"""Calls with DTensors in which sums go over the processes between the parts of an op, beside whole
tensors: CASES for processes.py, for two processes and for four."""

import functools
import itertools

import torch
from counted import count_collectives
from dtensor_derivatives import differentiate_twice
from dtensor_functions import SIMPLE, make_simple
from dtensor_shards import close, cut, make_mesh, whole
from norm_functions import BATCH_NORM, FUNCTIONS, FUSED, K, N, call, make_leaves, make_statistics
from torch.distributed import get_world_size
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.nn import functional as F

from cutlass_fused import functional

CASES = {}
ops = torch.ops.cutlass_fused
STATISTICS = ("running_mean", "running_var")
# Where tensors lie, by their names, all others whole.
COLUMNS = dict.fromkeys(("weight", "bias", "scale", "gamma", "beta", *STATISTICS), Shard(0))
INNER = {"x": Shard(1), "weight": Shard(1)}
ROWS = {"x": Shard(0)}


def case(test):
    CASES[test.__name__] = test
    return test


def line():
    return make_mesh(get_world_size())


def cut_each(leaves, placements, mesh=None):
    """placements: of each name one for each dimension of the mesh, or one for a line."""
    mesh, shards = mesh or line(), dict(leaves)
    for name, value in leaves.items():
        if isinstance(value, torch.Tensor):
            found = placements.get(name, Replicate())
            found = list(found) if isinstance(found, tuple) else [found] * mesh.ndim
            if value.dim() == 0 or value.numel() == 1:
                found = [Replicate()] * mesh.ndim
            shards[name] = cut(value, *found, mesh=mesh)
    return shards


def run_both(ours, plain, leaves, shards, placed=None):
    """Results and gradients; what the passes send."""
    expected = plain(leaves)
    grad = torch.linspace(-1.0, 1.5, expected.numel(), dtype=expected.dtype).view_as(expected)
    expected.backward(grad)
    with torch.no_grad():
        close([ours(shards)], [plain(leaves)])
    with count_collectives() as forward:
        y = ours(shards)
    assert placed is None or y.placements == placed, y.placements
    cut_grad = cut(grad, *y.placements, mesh=y.device_mesh)
    with count_collectives() as backward:
        y.backward(cut_grad)
    close([y], [expected])
    asked = [name for name, t in leaves.items() if isinstance(t, torch.Tensor) and t.requires_grad]
    close([shards[name].grad for name in asked], [leaves[name].grad for name in asked])
    return forward, backward


# ---- softmax of rows that are cut ----


def run_softmax(shape, dtype=torch.float64, out_dtype=None):
    leaves = {"x": (5 * torch.randn(*shape)).to(dtype).requires_grad_()}
    last = Shard(len(shape) - 1)
    sent = run_both(
        lambda t: functional.softmax(t["x"], out_dtype=out_dtype),
        lambda t: torch.softmax(t["x"], -1, dtype=out_dtype),
        leaves,
        cut_each(leaves, {"x": last}),
        (last,),
    )
    assert sent == ({"allreduce_": 2}, {"allreduce_": 1}), sent


# As many columns in each process, fewer in the last, none in some.
for shape in ((3, 8), (3, 7), (3, 2), (2, 3, 6), (5,), (0, 8)):
    CASES[f"softmax of {shape}"] = functools.partial(run_softmax, shape)


@case
def softmax_of_special_rows():
    inf, nan = torch.inf, torch.nan
    x = torch.randn(6, 8)
    x[1, 7], x[2, 2], x[3, 0], x[4], x[5, :5] = nan, inf, -inf, -inf, -inf
    y = functional.softmax(cut(x, Shard(1), mesh=line()))
    torch.testing.assert_close(whole(y), torch.softmax(x, 1), equal_nan=True)
    assert whole(y)[[1, 2, 4]].isnan().all() and not whole(y)[[0, 3, 5]].isnan().any()


@case
def softmax_of_16_bits():
    x = torch.randn(4, 12).bfloat16()
    shards = cut(x, Shard(1), mesh=line())
    for out_dtype in (None, torch.float32):
        y = functional.softmax(shards, out_dtype=out_dtype)
        expected = functional.softmax(x, out_dtype=out_dtype)
        assert y.dtype == y.to_local().dtype == expected.dtype
        torch.testing.assert_close(whole(y), expected, rtol=2**-8, atol=0)
        torch.testing.assert_close(whole(ops.softmax(shards, out_dtype)), whole(y))


# ---- a tail behind a product whose K is cut ----


def check_sum(name, bias=True):
    """y is whole. One sum goes over the processes, and none in the backward pass."""
    ours, plain, count = SIMPLE[name]
    leaves = make_simple(count, **({} if bias else {"bias": None}))
    sent = run_both(
        lambda t: ours(*t.values()),
        lambda t: plain(*t.values()),
        leaves,
        cut_each(leaves, INNER),
        (Replicate(),),
    )
    assert sent == ({"allreduce_": 1}, {}), sent


CASES["leaky_relu, inner"] = functools.partial(check_sum, "linear_scale_leaky_relu")
CASES["leaky_relu, inner, no bias"] = functools.partial(check_sum, "linear_scale_leaky_relu", False)


@case
def a_sum_that_is_not_worth_it():
    """Where y is larger than x, and weight is not cut: x is gathered, or moved to rows."""
    x, weight = torch.randn(64, 4), torch.randn(64, 4)
    shards = cut(x, Shard(1), mesh=line()), cut(weight, mesh=line())
    with count_collectives() as counted:
        y = functional.linear_scale_leaky_relu(*shards)
    assert y.placements == (Shard(0),) and sum(counted.values()) > 0
    assert not {"allreduce_", "all_reduce"} & counted.keys()
    torch.testing.assert_close(whole(y), F.leaky_relu(x @ weight.T))


@case
def sums_are_not_rounded():
    """16-bit shards of K are added up in fp32: one rounding, as of whole tensors."""
    x, weight = torch.rand(4, 64).bfloat16(), torch.rand(8, 64).bfloat16()
    shards = cut(x, Shard(1), mesh=line()), cut(weight, Shard(1), mesh=line())
    y = functional.linear_scale_leaky_relu(*shards, None, 1.5)
    assert y.dtype == torch.bfloat16
    exact = (x.double() @ weight.double().T * 1.5).bfloat16()
    torch.testing.assert_close(whole(y), exact, rtol=2**-8, atol=0)


# ---- batch norms ----

NORM_CUTS = {"rows": ROWS, "columns": COLUMNS, "inner": INNER}


def check_norm(function, training, placements, mesh=None):
    if not function.has_product and placements is COLUMNS:
        placements = placements | {"x": Shard(1)}
    leaves, statistics = make_leaves(function), make_statistics()
    named = dict(zip(STATISTICS, statistics, strict=True))
    cuts = cut_each(named, placements, mesh)
    shards, moved = cut_each(leaves, placements, mesh), list(cuts.values())
    placed = [t.placements for t in moved]
    expected = [t.clone() for t in statistics]

    def ours(t):
        return call(function.ours, t, moved, training)

    sent = run_both(ours, lambda t: call(function.plain, t, expected, training), leaves, shards)
    close(moved, expected)
    assert [t.placements for t in moved] == placed
    return sent


for function, training, placements in itertools.product(FUNCTIONS, (True, False), NORM_CUTS):
    if function.has_product or placements != "inner":
        CASES[f"{function}, {training}, {placements}"] = functools.partial(
            check_norm, function, training, NORM_CUTS[placements]
        )


@case
def what_training_sends():
    """No matrix."""
    statistics, sums = {"allgather_": 1}, {"allreduce_": 1}
    for function in FUNCTIONS:
        sent = check_norm(function, True, ROWS)
        assert sent == (statistics, sums), (str(function), sent)
    sent = check_norm(FUSED[0], True, COLUMNS)
    assert sent == ({}, {}), sent
    sent = check_norm(FUSED[1], True, COLUMNS)
    assert sent == ({"allreduce_": 2}, {"allreduce_": 1}), sent
    sent = check_norm(FUSED[0], True, INNER)
    assert sent == ({"allreduce_": 1}, {}), sent


@case
def results_of_training_ops():
    """Also what they keep for the backward pass."""
    weight = torch.randn(N, K)
    for m, keep_z, placements in itertools.product((5, 2), (False, True), NORM_CUTS.values()):
        leaves, centre = {"x": torch.randn(m, K), "weight": weight}, torch.zeros(N)
        shards = cut_each(leaves | {"centre": centre}, placements)
        center = shards.pop("centre")
        nothing, options = (None,) * 5, {"keep_z": keep_z}
        for op in (ops.linear_scale_batch_norm_train, ops.linear_batch_norm_scale_softmax_train):
            ours = op(*shards.values(), *nothing, centre=center, **options)
            expected = op(*leaves.values(), *nothing, centre=centre, **options)
            for a, b in zip(ours, expected, strict=True):
                assert a.shape == b.shape and a.stride() == b.stride()
                torch.testing.assert_close(whole(a), b, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(whole(center), centre, rtol=0, atol=1e-6)


@case
def batches_of_one_row():
    x = cut(torch.randn(1, N), Shard(0), mesh=line())
    try:
        functional.batch_norm(x, None, None, training=True)
    except ValueError as error:
        assert "more than 1 value per channel" in str(error)
    else:
        raise AssertionError("nothing was raised")


# ---- meshes of two dimensions ----


def make_square():
    return make_mesh(2, get_world_size() // 2)


@case
def rows_and_columns():
    """Statistics over one dimension of the mesh, sums of a softmax over the other."""
    both = {name: (Replicate(), Shard(0)) for name in COLUMNS} | {"x": (Shard(0), Replicate())}
    for function in FUSED:
        for training in (True, False):
            check_norm(function, training, both, make_square())
    check_norm(BATCH_NORM, True, {**both, "x": (Shard(0), Shard(1))}, make_square())


@case
def rows_and_sums():
    both = {"x": (Shard(0), Shard(1)), "weight": (Replicate(), Shard(1))}
    for function in FUSED:
        for training in (True, False):
            check_norm(function, training, both, make_square())
    leaves = make_simple(4)
    ours, plain, _ = SIMPLE["linear_scale_leaky_relu"]
    run_both(
        lambda t: ours(*t.values()),
        lambda t: plain(*t.values()),
        leaves,
        cut_each(leaves, both, make_square()),
        (Shard(0), Replicate()),
    )


@case
def all_of_it_along_one_dimension():
    """Rows, or K, that both dimensions cut: of rows one is gathered in training."""
    for placements in ({"x": (Shard(0), Shard(0))}, {n: (Shard(1),) * 2 for n in INNER}):
        for function in FUSED:
            check_norm(function, True, placements, make_square())
    leaves = {"x": torch.randn(3, 11).double().requires_grad_()}
    shards = cut_each(leaves, {"x": (Shard(1), Shard(1))}, make_square())
    softmax = functional.softmax
    run_both(lambda t: softmax(t["x"]), lambda t: torch.softmax(t["x"], 1), leaves, shards)


@case
def partial_sums_as_inputs():
    """Of which each process has a share."""
    mesh = line()
    x, weight = torch.randn(4, K).double(), torch.randn(N, K).double()
    shards = [cut(t, Shard(1), mesh=mesh) for t in (x, weight)]
    z = functional.linear(*shards)
    assert z.placements == (Partial(),)
    close([functional.softmax(z)], [torch.softmax(x @ weight.T, 1)])


# ---- derivatives of gradients ----


def check_twice(name, placements):
    if name in SIMPLE:
        ours, plain, count = SIMPLE[name]
        leaves = make_simple(count)
        shards = cut_each(leaves, placements)
        found = differentiate_twice(lambda t: ours(*t.values()), shards)
        close(found, differentiate_twice(lambda t: plain(*t.values()), leaves))
        return
    (function,) = (each for each in FUNCTIONS if str(each) == name)
    if not function.has_product and placements is COLUMNS:
        placements = placements | {"x": Shard(1)}
    leaves = make_leaves(function, bias=False)
    nothing, options = (None, None), (True,)
    shards = cut_each(leaves, placements)
    found = differentiate_twice(lambda t: call(function.ours, t, nothing, *options), shards)
    expected = differentiate_twice(lambda t: call(function.plain, t, nothing, *options), leaves)
    close(found, expected)


for name, placements in (
    ("softmax", {"x": Shard(1)}),
    ("linear_scale_leaky_relu", INNER),
    ("batch_norm", ROWS),
    *itertools.product(map(str, FUSED), NORM_CUTS.values()),
):
    key = next((each for each, value in NORM_CUTS.items() if value is placements), "parts")
    CASES[f"twice {name}, {key}"] = functools.partial(check_twice, name, placements)
