"""Batched and added products, and the ops of backward passes, with DTensors beside whole tensors:
CASES for processes.py, for two processes and for four."""

import functools
import itertools

import torch
from counted import count_collectives
from dtensor_reductions import cut_each, make_square
from dtensor_shards import message, whole
from torch.distributed import get_world_size
from torch.distributed.tensor import Partial, Replicate, Shard

from cutlass_fused.sharding._subscripts import SUBSCRIPTS

CASES = {}
ops = torch.ops.cutlass_fused
# Fewer in the last process, or none.
SIZES = {"b": 3, "m": 5, "n": 6, "k": 7}
VECTORS = ("mean", "rstd", "scale", "gamma", "beta", "grad_gamma", "grad_beta", "bias")
NUMBERS = {
    "leaky_relu_gradient": (1.5, -0.25),
    "unscale_columns": (0.5,),
    "scale_gradient": (0.5,),
    "addmm": (0.5, 2.0),
    "addmm_out": (0.5, 2.0),
    "baddbmm": (0.5, 2.0),
    "baddbmm_out": (0.5, 2.0),
}


def case(test):
    CASES[test.__name__] = test
    return test


def make_tensors(name):
    """In the order of the op, whose optional ones come behind its numbers."""
    schema, letters = getattr(ops, name).default._schema, SUBSCRIPTS[name].inputs
    found = {}
    for argument in schema.arguments:
        if argument.name in letters:
            sizes = [SIZES[letter] for letter in letters[argument.name]]
            found[argument.name] = torch.randn(sizes, dtype=torch.float64)
    if "positive" in found:
        found["positive"] = found["positive"] > 0
    if "rstd" in found:  # on both sides of what scale_gradient and unscale_columns ask
        found["rstd"] = found["rstd"].abs() + 0.5
    return found


def run(name, tensors):
    numbers = iter(NUMBERS.get(name, ()))
    arguments = {}
    for argument in getattr(ops, name).default._schema.arguments:
        if argument.name in tensors:
            arguments[argument.name] = tensors[argument.name]
        elif str(argument.type) == "float":
            arguments[argument.name] = next(numbers)
    results = getattr(ops, name)(**arguments)
    results = [] if results is None else results
    return [results] if isinstance(results, torch.Tensor) else list(results)


def check(name, letter, mesh=None):
    """Nothing is sent where all lies so already."""
    tensors, subscripts = make_tensors(name), SUBSCRIPTS[name]
    placed = {
        key: Shard(letters.index(letter)) if letter in letters else Replicate()
        for key, letters in subscripts.inputs.items()
    }
    shards = cut_each(tensors, placed, mesh)
    with count_collectives() as counted:
        found = run(name, shards)
    compare(name, tensors, shards, found)
    if letter in subscripts.cuts:
        assert not counted, counted
        for result, letters in zip(found, subscripts.results, strict=False):
            expected = Shard(letters.index(letter)) if letter in letters else Partial()
            assert result.placements == (expected,), (letters, result.placements)


def compare(name, tensors, shards, found):
    expected = run(name, tensors)
    assert [t.shape for t in found] == [t.shape for t in expected]
    pairs = [*zip(found, expected, strict=True), *((shards[key], tensors[key]) for key in tensors)]
    for a, b in pairs:  # among them what is written to
        assert a.dtype == b.dtype
        torch.testing.assert_close(whole(a), b, rtol=1e-11, atol=1e-11)


for name, letter in itertools.product(SUBSCRIPTS, "bmnk"):
    if any(letter in letters for letters in SUBSCRIPTS[name].inputs.values()):
        CASES[f"{name}, {letter}"] = functools.partial(check, name, letter)


@case
def sums_of_several_shapes():
    """What is added is repeated along what it lacks."""
    for name, shapes in (("addmm", ((), (1,), (6,), (1, 6), (5, 1))), ("baddbmm", ((6,), (5, 1)))):
        for shape, letter in itertools.product(shapes, "mn"):
            tensors = make_tensors(name)
            tensors["c"] = torch.randn(shape, dtype=torch.float64)
            letters = SUBSCRIPTS[name].inputs
            placed = {
                key: Shard(letters[key].index(letter))
                for key in ("x", "weight")
                if letter in letters[key]
            }
            shards = cut_each(tensors, placed)
            compare(name, tensors, shards, run(name, shards))


@case
def what_is_optional():
    for name in ("batch_norm_gradient", "batch_norm_scale_gradient", "linear_out"):
        tensors = make_tensors(name)
        for key in ("gamma", "beta", "bias"):
            tensors.pop(key, None)
        if "scale" in tensors:
            tensors["scale"] = torch.randn(1, dtype=torch.float64)
        vectors = dict.fromkeys(VECTORS, Shard(0))
        shards = cut_each(tensors, vectors | {"x": Shard(1), "z": Shard(1)})
        compare(name, tensors, shards, run(name, shards))


@case
def products_on_a_mesh_of_two_dimensions():
    mesh = make_square()
    tensors = make_tensors("bmm")
    rows = {"x": (Shard(0), Shard(1)), "weight": (Shard(0), Replicate())}
    inner = {"x": (Shard(1), Shard(2)), "weight": (Replicate(), Shard(2))}
    for placed, expected in ((rows, (Shard(0), Shard(1))), (inner, (Shard(1), Partial()))):
        shards = cut_each(tensors, placed, mesh)
        (y,) = found = run("bmm", shards)
        assert y.placements == expected, y.placements
        compare("bmm", tensors, shards, found)


@case
def sequences_of_gradients():
    """Of more dimensions than are named: whole."""
    x, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    shards = cut_each({"x": x, "y": y}, {"x": Shard(0), "y": Shard(0)})
    found = ops.softmax_gradient(shards["x"], shards["y"])
    torch.testing.assert_close(whole(found), ops.softmax_gradient(x, y))


@case
def sizes_that_do_not_fit():
    """Shards would fit."""
    x, weight = torch.randn(2, 4, get_world_size()), torch.randn(2, 4, 2 * get_world_size())
    shards = cut_each({"x": x, "weight": weight}, {"x": Shard(2)})
    assert message(lambda: ops.bmm(shards["x"], shards["weight"])).startswith("bmm: ")
