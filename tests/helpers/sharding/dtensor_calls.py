"""Single calls with DTensors, of functions and of raw ops: CASES for processes.py."""

import itertools

import torch
from dtensor_functions import CUTS, cut_all
from dtensor_shards import cut, make_mesh, message, whole
from norm_functions import K, M, N
from torch.distributed import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused import _library, functional
from cutlass_fused.sharding import _call, _layouts

ops = torch.ops.cutlass_fused
CASES = {}


def case(test):
    CASES[test.__name__] = test
    return test


@case
def calls_that_differ_in_what_is_absent():
    """Each has a plan of its own."""
    x, weight = cut(torch.randn(M, K)), cut(torch.randn(N, K), Shard(0))
    vectors = [torch.randn(N), torch.rand(N)]
    for bias, scale in itertools.product((None, *vectors), repeat=2):
        shards = [None if t is None else cut(t) for t in (bias, scale)]
        y = ops.linear_scale_leaky_relu(x, weight, *shards)
        expected = ops.linear_scale_leaky_relu(whole(x), whole(weight), bias, scale)
        torch.testing.assert_close(whole(y), expected)


@case
def dtypes_of_results():
    x, weight = cut(torch.randn(M, K).bfloat16(), Shard(0)), cut(torch.randn(N, K).bfloat16())
    assert ops.linear(x, weight).dtype == torch.bfloat16
    y = ops.linear(x, weight, out="float32")
    assert y.dtype == y.to_local().dtype == torch.float32
    assert ops.softmax(x, torch.float32).dtype == torch.float32
    for softmax in (ops.softmax(x), functional.softmax(x)):
        torch.testing.assert_close(whole(softmax), torch.softmax(whole(x), 1))


@case
def arguments_by_name():
    x, weight, bias = torch.randn(M, K), torch.randn(N, K), torch.randn(N)
    shards = {"bias": cut(bias), "weight": cut(weight, Shard(0)), "x": cut(x, Shard(0))}
    torch.testing.assert_close(whole(ops.linear(**shards)), F.linear(x, weight, bias))


@case
def results_of_training_ops():
    x, weight, centre = torch.randn(M, K), torch.randn(N, K), torch.zeros(N)
    nothing = (None,) * 5
    for keep_z, cuts in itertools.product((False, True), ("columns", "rows")):
        shards = cut_all({"x": x, "weight": weight}, CUTS[cuts])
        center = cut(centre, Shard(0))
        options = {"keep_z": keep_z}
        for op in (ops.linear_scale_batch_norm_train, ops.linear_batch_norm_scale_softmax_train):
            ours = op(*shards.values(), *nothing, centre=center, **options)
            expected = op(x, weight, *nothing, centre=centre, **options)
            for a, b in zip((*ours, center), (*expected, centre), strict=True):
                assert a.shape == b.shape and a.stride() == b.stride()
                torch.testing.assert_close(whole(a), b)


@case
def splits_of_weights():
    """None is kept of a DTensor, looked up by it, or read beside it."""
    weight, cache = torch.randn(N, 64), cutlass_fused.weights.splits.SplitCache(lambda *a: a)
    shard = cut(weight, Shard(0))
    assert cache.find(shard, "ieee") is None and len(cache) == 0
    cache.forget(shard), cutlass_fused.invalidate(shard)
    split = ops.split_weight(shard)
    assert split.shape == ops.split_weight(weight).shape
    x = cut(torch.randn(M, 64))
    y = functional.linear(x, shard, weight_split=torch.zeros(3, dtype=torch.uint8))
    torch.testing.assert_close(whole(y), whole(x) @ weight.T)


@case
def what_does_not_fit():
    x, weight = cut(torch.randn(M, K)), cut(torch.randn(N, K), Shard(0))
    said = message(lambda: functional.linear(x, whole(weight)))
    assert said.startswith("linear: weight must be a DTensor, as others are, got a tensor"), said
    said = message(lambda: functional.linear(cut(torch.randn(M, K + 1)), weight))
    assert said.startswith(f"linear: x must have {K} columns, as weight ({N}, {K}) has"), said
    said = message(lambda: functional.linear(x, weight, cut(torch.randn(N - 1), Shard(0))))
    assert said.startswith(f"linear: bias must have shape (N,) = ({N},), got ({N - 1},)"), said
    other = make_mesh(1, 2)
    said = message(lambda: functional.linear(x, cut(torch.randn(N, K), mesh=other)))
    assert said.startswith("linear: all tensors must be of one mesh"), said


@case
def plain_tensors_where_that_is_allowed():
    x, weight = torch.randn(M, K), torch.randn(N, K, requires_grad=True)
    with implicit_replication():
        y = functional.linear(cut(x, Shard(0)), weight)
        y.sum().backward()
    torch.testing.assert_close(whole(y), F.linear(x, weight))
    torch.testing.assert_close(weight.grad, x.sum(0).expand(N, K))


@case
def a_mesh_of_one_process():
    """To the other one nothing belongs."""
    mesh = DeviceMesh("cpu", [0])
    x, weight = cut(torch.randn(M, K), mesh=mesh), cut(torch.randn(N, K), mesh=mesh)
    weight.requires_grad_()
    y = functional.linear(x, weight)
    assert y.shape == (M, N) and functional.linear(x.detach(), weight.detach()).shape == (M, N)
    is_in = torch.distributed.get_rank() == 0
    assert y.to_local().numel() == (M * N if is_in else 0)


@case
def autocast():
    x, weight = torch.randn(M, K), torch.randn(N, K)
    with torch.autocast("cpu"):
        y = functional.linear(cut(x, Shard(0)), cut(weight))
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(whole(y), F.linear(x, weight))


@case
def compiled():
    """In one graph without gradients, with them around an eager call."""
    x, weight = torch.randn(M, K), torch.randn(N, K)
    shards = cut(x), cut(weight, Shard(0))
    run = torch.compile(functional.linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(whole(run(*shards)), F.linear(x, weight))
    torch._dynamo.reset()
    shards[1].requires_grad_()
    run = torch.compile(functional.linear, backend="aot_eager")
    run(*shards).sum().backward()
    torch.testing.assert_close(whole(shards[1].grad), x.sum(0).expand(N, K))


@case
def every_op_has_a_rule():
    rules = {*_layouts.CUTS, *_call.PROGRAMS, *_call.SUBSCRIPTS}
    assert rules == {op.__name__ for op in _library._TENSOR_OPS}
