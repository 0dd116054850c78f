"""Gradients of gradients with DTensors beside those of whole tensors: CASES for processes.py."""

import functools
import itertools

import torch
from dtensor_functions import CUTS, SIMPLE, cut_all, make_simple
from dtensor_shards import close
from norm_functions import FUNCTIONS, call, make_leaves, make_statistics

CASES = {}


def differentiate_twice(run, leaves):
    asking = [t for t in leaves.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    y = run(leaves).sin().sum()
    grads = torch.autograd.grad(y, asking, create_graph=True)
    loss = sum(grad.square().sum() for grad in grads)
    second = torch.autograd.grad(loss, asking, allow_unused=True)
    # That of a bias in front of a batch norm is 0, or none.
    return [grads[i] if grad is None else grad for i, grad in enumerate(second)]


def check_simple(name, placements):
    ours, plain, count = SIMPLE[name]
    leaves = make_simple(count)
    shards = cut_all(leaves, CUTS[placements])
    found = differentiate_twice(lambda t: ours(*t.values()), shards)
    close(found, differentiate_twice(lambda t: plain(*t.values()), leaves))


def check_norm(function, training, placements):
    leaves = make_leaves(function)
    leaves.pop("bias", None)
    bias = {"bias": None} if function.has_product else {}

    def run(run, tensors, statistics):
        names = (*function.names, "gamma", "beta")
        tensors = {name: (tensors | bias)[name] for name in names}
        return call(run, tensors, statistics, training)

    statistics = dict(zip(("running_mean", "running_var"), make_statistics(), strict=True))
    shards = cut_all(leaves | statistics, CUTS[placements])
    moved = [shards.pop(name) for name in statistics]
    found = differentiate_twice(lambda t: run(function.ours, t, moved), shards)
    expected = list(statistics.values())
    close(found, differentiate_twice(lambda t: run(function.plain, t, expected), leaves))
    close(moved, expected)


for name, placements in itertools.product(SIMPLE, CUTS):
    CASES[f"twice-{name}-{placements}"] = functools.partial(check_simple, name, placements)
for function, training, placements in itertools.product(FUNCTIONS, (True, False), CUTS):
    mode = "train" if training else "eval"
    CASES[f"twice-{function}-{mode}-{placements}"] = functools.partial(
        check_norm, function, training, placements
    )
