"""Epilogues that users write, with DTensors, beside whole tensors: CASES for processes.py, for two
processes and for four."""

import functools
import itertools

import torch
from dtensor_derivatives import differentiate_twice
from dtensor_reductions import COLUMNS, INNER, ROWS, cut_each, line, make_square, run_both
from dtensor_shards import close, cut, message, whole
from torch.distributed import get_world_size
from torch.distributed.tensor import Replicate, Shard
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused.programs.common import FUNCTIONS

CASES = {}
M, N, K = 6, 10, 8
ops = torch.ops.cutlass_fused


def case(test):
    CASES[test.__name__] = test
    return test


@cutlass_fused.epilogue
def gated(acc, bias, gate, row, tile, temperature):
    return F.gelu(acc + bias) * torch.sigmoid(gate) * row + tile / temperature


@cutlass_fused.epilogue
def normed(acc, bias, gate, row, tile, temperature):
    z = (acc + bias) * gate + tile
    return F.layer_norm(z, z.shape[-1:]) * row / temperature


EPILOGUES = {"elements": gated, "rows": normed}
# gate has a value for each column, row one for each row, tile one for each element.
PLACED = {
    "columns": COLUMNS | {"gate": Shard(0), "tile": Shard(1)},
    "rows": ROWS | {"row": Shard(0), "tile": Shard(0)},
    "inner": INNER,
    "whole": {},
    "mixed": {"x": Shard(1), "tile": Shard(0), "gate": Shard(0)},
}


def make_leaves(leading=(M,)):
    sizes = {
        **{"x": (*leading, K), "weight": (N, K), "bias": (N,), "gate": (1, N)},
        **{"row": (*leading, 1), "tile": (*leading, N), "temperature": (1,)},
    }
    leaves = {name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()}
    leaves["gate"] = leaves["gate"].reshape(N)
    return {name: leaf.requires_grad_() for name, leaf in leaves.items()}


def run(epilogue, leaves, is_plain=False):
    x, weight, *_ = leaves.values()
    operands = {name: value for name, value in leaves.items() if name not in ("x", "weight")}
    if is_plain:
        return epilogue.__wrapped__(F.linear(x, weight), **operands)
    return epilogue(x, weight, **operands)


# What lies so already is computed where it lies; the sum of products is sent.
SENT = {"columns": {}, "rows": {}, "whole": {}, "inner": {"allreduce_": 1}}


def check(name, placements, mesh=None):
    epilogue, leaves = EPILOGUES[name], make_leaves()
    shards = cut_each(leaves, PLACED[placements], mesh)
    forward, backward = run_both(
        functools.partial(run, epilogue),
        functools.partial(run, epilogue, is_plain=True),
        leaves,
        shards,
    )
    if (name, placements) != ("rows", "columns") and placements in SENT:
        assert (forward, backward) == (SENT[placements], {}), (forward, backward)


def check_twice(name, placements):
    epilogue, leaves = EPILOGUES[name], make_leaves()
    shards = cut_each(leaves, PLACED[placements])
    found = differentiate_twice(functools.partial(run, epilogue), shards)
    expected = differentiate_twice(functools.partial(run, epilogue, is_plain=True), leaves)
    close(found, expected)


for name, placements in itertools.product(EPILOGUES, PLACED):
    CASES[f"epilogue of {name}, {placements}"] = functools.partial(check, name, placements)
for name, placements in itertools.product(EPILOGUES, SENT):
    CASES[f"twice epilogue of {name}, {placements}"] = functools.partial(
        check_twice, name, placements
    )


@case
def where_results_lie():
    leaves = make_leaves()
    for placements, expected in (("columns", Shard(1)), ("rows", Shard(0)), ("inner", Replicate())):
        y = run(gated, cut_each(leaves, PLACED[placements]))
        assert y.placements == (expected,) and y.shape == (M, N), (placements, y.placements)


@case
def sequences():
    """Cut along each of their dimensions."""
    for dim in range(3):
        leaves = make_leaves((2, 3))
        placed = {name: Shard(dim) for name in ("x", *(("row", "tile") if dim < 2 else ()))}
        shards = cut_each(leaves, placed)
        plain = functools.partial(run, gated, is_plain=True)
        run_both(functools.partial(run, gated), plain, leaves, shards)


@case
def meshes_of_two_dimensions():
    rows, columns, inner = (
        {name: (Shard(0), Replicate()) for name in ("x", "row")} | {"tile": (Shard(0), Shard(1))},
        {name: (Replicate(), Shard(0)) for name in ("weight", "bias", "gate")},
        {"x": (Shard(0), Shard(1)), "weight": (Replicate(), Shard(1))},
    )
    for placed in (rows | columns, inner):
        leaves = make_leaves()
        shards = cut_each(leaves, placed, make_square())
        plain = functools.partial(run, gated, is_plain=True)
        run_both(functools.partial(run, gated), plain, leaves, shards)


@cutlass_fused.epilogue
def halves(acc, bias):
    """Of groups of columns, of rows, and of elements."""
    z = acc + bias
    return z.unflatten(-1, (-1, 2)).sum(-1), z.amax(-1), z


@case
def results_of_several_shapes():
    for placed in (ROWS, COLUMNS, INNER, {}):
        leaves = {name: value for name, value in make_leaves().items() if name in placed_names()}
        shards = cut_each(leaves, placed)
        ours = halves(*list(shards.values())[:2], bias=shards["bias"])
        plain = halves.__wrapped__(F.linear(leaves["x"], leaves["weight"]), leaves["bias"])
        assert [y.shape for y in ours] == [y.shape for y in plain] == [(M, N // 2), (M,), (M, N)]
        close(ours, plain)
        sum(y.square().sum() for y in ours).backward()
        sum(y.square().sum() for y in plain).backward()
        close([t.grad for t in shards.values()], [t.grad for t in leaves.values()])


def placed_names():
    return ("x", "weight", "bias")


@case
def names_of_epilogues():
    for name in FUNCTIONS:
        numbers = {"min": -0.5} if name == "clamp" else {}
        leaves = {key: value for key, value in make_leaves().items() if key in placed_names()}
        if name == "prelu":
            leaves["slope"] = torch.randn(N, dtype=torch.float64).requires_grad_()
        for placed in (COLUMNS | {"slope": Shard(0)}, ROWS, INNER):

            def ours(t, name=name, numbers=numbers):
                x, weight, *rest = t.values()
                named = dict(zip(("bias", "slope"), rest, strict=False))
                return functional.linear_epilogue(x, weight, name, **named, **numbers)

            def plain(t, name=name, numbers=numbers):
                x, weight, *rest = t.values()
                named = dict(zip(("bias", "slope"), rest, strict=False))
                return FUNCTIONS[name](F.linear(x, weight), **named, **numbers)

            for leaf in leaves.values():
                leaf.grad = None
            run_both(ours, plain, leaves, cut_each(leaves, placed))


@case
def raw_ops():
    leaves = {name: value.detach() for name, value in make_leaves().items()}
    program = "program 1\noperands 2\nv0 = add acc p0\nv1 = mul v0 p1\nreturn v1 v0\n"
    rows = "program 1\noperands 2\ncolumns 10\nv0 = add acc p0\nv1 = row_sum v0 0x1.4p+3\n"
    rows += "v2 = mul v1 p1\nreturn v0 v2:10\n"
    for placed, text in itertools.product((COLUMNS, ROWS, INNER, {}), (program, rows)):
        shards = cut_each(leaves, placed | {"row": placed.get("x", Replicate())})
        ours = ops.linear_epilogue(
            shards["x"], shards["weight"], [shards["bias"], cut_row(shards, placed)], text
        )
        operands = [leaves["bias"], leaves["row"]]
        plain = ops.linear_epilogue(leaves["x"], leaves["weight"], operands, text)
        assert [y.shape for y in ours] == [y.shape for y in plain]
        close(ours, plain)
        acc = leaves["tile"]
        for placement in (Shard(0), Shard(1), Replicate()):
            shard = cut(acc, placement, mesh=line())
            ours = ops.apply_program(shard, [shards["bias"], cut_row(shards, placed)], text)
            close(ours, ops.apply_program(acc, operands, text))
            if text is program:
                given = [shards["bias"], cut_row(shards, placed)], text, "float64,sum:float64"
                ours = ops.apply_program(shard, *given)
                close(ours, ops.apply_program(acc, operands, *given[1:]))
            if text is program and (placed, placement) in (({}, Replicate()), (COLUMNS, Shard(1))):
                assert ours[0].placements == (placement,)


def cut_row(shards, placed):
    """One value for each row."""
    return cut(whole(shards["row"]), Shard(0) if "x" in placed else Replicate(), mesh=line())


@case
def operands_that_do_not_fit():
    shards = cut_each({name: value.detach() for name, value in make_leaves().items()}, COLUMNS)
    x, weight = shards["x"], shards["weight"]
    relu = functools.partial(functional.linear_epilogue, x, weight, "relu")
    said = message(lambda: relu(bias=torch.randn(N)))
    assert "bias must be a DTensor, as others are" in said, said
    said = message(lambda: relu(bias=cut(torch.randn(N - 1), mesh=line())))
    assert said.startswith("relu: bias must have shape"), said
    moved = cutlass_fused.epilogue(lambda acc: acc.roll(1, 0))
    assert "lambda" in message(lambda: moved(x, weight))


@case
def compiled_epilogues():
    if get_world_size() > 2:
        return  # the same graphs
    leaves = make_leaves()
    shards = cut_each(leaves, PLACED["columns"])
    y = torch.compile(lambda: run(gated, shards), backend="aot_eager")()
    close([y], [run(gated, leaves, is_plain=True)])
    torch._dynamo.reset()
