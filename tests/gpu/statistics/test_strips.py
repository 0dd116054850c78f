"""Batch norm in training of a large result, by a kernel that runs while the product does."""

import pytest
import torch
from accuracy_statistics import StatisticsJudge
from calls import SCALE_NORM_TRAIN
from cases import BF16, FP16, Shape
from cases_statistics import make_statistics_call
from judge_call import assert_same_bits, check_kernels_wait, judge_call
from logged import read_plan, run_logged
from tiles import has_sm90_kernels

pytestmark = pytest.mark.gpu

# From 32 MiB of 16 bits on. Strips of 256 columns, four to a panel, of which hardly any may be
# empty; tiles of 128 columns by 256 rows; 256 rows to a unit. That these are taken in strips is
# what tests/plan/test_choose_batch_norm.py says.
SHAPES = (
    Shape(16384, 4096, 64, "whole panels"),
    Shape(16129, 2040, 64, "ragged columns; a unit of one row"),
    Shape(32700, 1912, 264, "a strip of one ragged tile, many parts of a column"),
    Shape(4090, 8184, 264, "ragged both ways"),
    Shape(2040, 16376, 264, "many strips of few rows"),
)
of_all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
in_16_bits = pytest.mark.parametrize("numerics", [BF16, FP16], ids=str)
RAGGED = SHAPES[1]


def make(shape, numerics, device, **kinds):
    return make_statistics_call(SCALE_NORM_TRAIN, shape, numerics, device, **kinds).change(
        keep_z=False
    )


@of_all_shapes
@in_16_bits
def test_shapes(device, numerics, shape):
    judge_call(make(shape, numerics, device))


@in_16_bits
def test_z_may_be_kept(device, numerics):
    judge_call(make(RAGGED, numerics, device).change(keep_z=True))


@pytest.mark.parametrize("kind", ["none", "strided", "offset"])
@in_16_bits
def test_vectors(device, numerics, kind):
    statistics = "fp32" if kind == "none" else kind
    kinds = {"bias": kind, "vectors": kind, "statistics": statistics}
    judge_call(make(RAGGED, numerics, device, **kinds))


@pytest.mark.parametrize("momentum", [None, 0.0])
@in_16_bits
def test_momentum(device, numerics, momentum):
    results = judge_call(make(RAGGED, numerics, device, momentum=momentum))
    assert int(results["num_batches_tracked"]) == 5


@pytest.mark.parametrize("missing", ["running_mean", "running_var", "num_batches_tracked"])
def test_each_running_statistic_may_be_missing(device, missing):
    judge_call(make(RAGGED, BF16, device).change(**{missing: None}))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_special_inputs(device, value):
    call = make(RAGGED, BF16, device)
    call.x[16128, 7] = value
    assert call.run_all()["y"].isnan().all()


@pytest.mark.parametrize("training", [False, True])
def test_these_kernels_run(device, training):
    if not has_sm90_kernels(device):
        pytest.skip("another GPU")
    _, log = run_logged(f"""
        import torch
        from cutlass_fused import nn
        model = nn.LinearScaleBatchNorm1d(64, 4096, (4096,)).cuda().bfloat16()
        with torch.set_grad_enabled({training}):
            model(torch.rand(16384, 64, device="cuda").bfloat16())
        """)
    assert [read_plan(line)[1:] for line in log] == [["statistics: strips", "z less shifts"]], log


@in_16_bits
def test_two_runs_give_the_same_bits(device, numerics):
    """Whichever block takes a unit."""
    call = make(RAGGED, numerics, device)
    first = call.run_all()
    for _ in range(20):
        assert_same_bits(call.run_all(), first)


@in_16_bits
def test_streams_at_once(device, numerics):
    """Products whose kernels behind them wait, in four streams: all end, and share no workspace."""
    shape = Shape(16129, 2040, 1032, "a while")
    calls = [make(shape, numerics, device, seed=seed) for seed in range(4)]
    expected = [call.run_all() for call in calls]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in calls]
    results = [[] for _ in calls]
    for _ in range(5):
        for call, stream, found in zip(calls, streams, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(call.run_all())
    torch.cuda.synchronize()
    for one, many in zip(expected, results, strict=True):
        for found in many:
            assert_same_bits(found, one)


@in_16_bits
def test_graph_replays_with_new_inputs(device, numerics):
    """Tiles of the run before are no tiles of this one."""
    call = make(RAGGED, numerics, device, momentum=None)
    call.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.run()
    for seed in (1, 2, 3):
        new = make(RAGGED, numerics, device, seed=seed, momentum=None)
        for name, tensor in call.tensors().items():
            tensor.copy_(new.tensors()[name])
        judge = StatisticsJudge(new)
        graph.replay()
        judge.check({k: t.clone() for k, t in call.name_results(captured).items()})


@in_16_bits
def test_kernels_wait_for_what_they_read(device, numerics):
    """x changes right in front of a call and right behind it."""
    shape = Shape(16129, 2040, 1032, "a while")
    check_kernels_wait(*(make(shape, numerics, device, seed=seed) for seed in (0, 1)))


def test_next_kernel_waits_for_all_of_y(device):
    """Right behind a call, without a pause: what reads y reads all of it."""
    call = make(Shape(16384, 4096, 512, "several waves"), BF16, device)
    expected = call.run_all()["y"].clone()
    for _ in range(20):
        assert torch.equal(call.run_all()["y"].clone(), expected)
