"""Batch norm in training by products that find the statistics themselves, or normalize by them."""

import pytest
import torch
from accuracy_statistics import StatisticsJudge
from calls import NORM_SOFTMAX, NORM_SOFTMAX_TRAIN, SCALE_NORM_TRAIN
from cases import BF16, BF16_FP32, FP16, FP16_FP32, IEEE, TF32, Shape
from cases_statistics import make_distant_call, make_special_statistics_call, make_statistics_call
from judge_call import assert_same_bits, check_kernels_wait, judge_call
from layouts import cut_aligned_block, cut_block
from logged import read_plan, run_logged
from tiles import force_tile, has_sm90_kernels

pytestmark = pytest.mark.gpu

TRAIN = (SCALE_NORM_TRAIN, NORM_SOFTMAX_TRAIN)
# Tiles of 128 columns by 256 rows (128 in fp32 "ieee"), of which clusters hold two.
SHAPES = (
    Shape(256, 128, 64, "one tile, beside an empty one"),
    Shape(2, 264, 40, "the smallest batch; the last columns ragged"),
    Shape(257, 136, 64, "a second tile of one row"),
    Shape(1000, 1032, 72, "two clusters to a group, ragged both ways"),
    Shape(1024, 8192, 64, "whole tiles: two waves of all SMs"),
    Shape(700, 8200, 264, "ragged, more groups than run at once; a tile without a row"),
    Shape(5000, 264, 64, "ten clusters to a group"),
    Shape(16383, 136, 64, "more parts of a column than a thread loads at once"),
)
of_both = pytest.mark.parametrize("op", TRAIN)
of_all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
of_all_numerics = pytest.mark.parametrize("numerics", [IEEE, TF32, BF16, FP16], ids=str)
in_16_bits = pytest.mark.parametrize("numerics", [BF16, FP16], ids=str)


def make(op, shape, numerics, device, **kinds):
    return make_statistics_call(op, shape, numerics, device, **kinds).change(keep_z=False)


@of_all_shapes
@of_all_numerics
@of_both
def test_shapes(device, op, numerics, shape):
    judge_call(make(op, shape, numerics, device))


@of_all_shapes
@of_all_numerics
@of_both
def test_shapes_with_z(device, op, numerics, shape):
    judge_call(make_statistics_call(op, shape, numerics, device))


@pytest.mark.parametrize("kind", ["none", "fp32", "strided", "offset"])
@of_all_numerics
@of_both
def test_vectors(device, op, numerics, kind):
    statistics = "fp32" if kind == "none" else kind
    kinds = {"bias": kind, "vectors": kind, "statistics": statistics}
    judge_call(make(op, SHAPES[3], numerics, device, **kinds))


@pytest.mark.parametrize("kind", ["none", "scalar", "one_fp32", "strided"])
@of_all_numerics
@of_both
def test_scales(device, op, numerics, kind):
    judge_call(make(op, SHAPES[3], numerics, device, scale=kind))


@pytest.mark.parametrize("layout", [cut_block, cut_aligned_block], ids=lambda f: f.__name__)
@of_all_numerics
@of_both
def test_layouts(device, op, numerics, layout):
    call = make(op, SHAPES[3], numerics, device)
    judge_call(call.change(x=layout(call.x), weight=layout(call.weight)))


@pytest.mark.parametrize("momentum", [None, 0.0, 1.0])
@of_all_numerics
@of_both
def test_momentum(device, op, numerics, momentum):
    results = judge_call(make(op, SHAPES[3], numerics, device, momentum=momentum))
    assert int(results["num_batches_tracked"]) == 5


@pytest.mark.parametrize("missing", ["running_mean", "running_var", "num_batches_tracked"])
@of_all_numerics
@of_both
def test_each_running_statistic_may_be_missing(device, op, numerics, missing):
    judge_call(make(op, SHAPES[3], numerics, device).change(**{missing: None}))


# All kernels that find statistics: in 16 bits, without z, a group, a product alone, and strips.
DISTANT = (
    Shape(1000, 264, 40, "in groups in 16 bits"),
    Shape(16384, 264, 16, "by the product in all four types"),
    Shape(16384, 2048, 16, "in strips in 16 bits"),
)


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("shape", DISTANT[:2], ids=str)
@of_all_numerics
@of_both
def test_distant_means(device, op, numerics, shape, ratio):
    """The bias is the mean: what is left is the error of the statistics."""
    call = make_distant_call(op, numerics, ratio, device, shape=shape)
    out = torch.float32 if numerics in (BF16, FP16) and ratio > 1 else call.out_dtype
    judge_call(call.change(out_dtype=out, keep_z=False))


@pytest.mark.parametrize("ratio", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("shape", DISTANT, ids=str)
@in_16_bits
def test_distant_means_are_no_worse_than_those_of_fp32(device, numerics, shape, ratio):
    """Products find the statistics of z before it is rounded: mean and rstd are those of fp32."""
    call = make_distant_call(SCALE_NORM_TRAIN, numerics, ratio, device, shape=shape)
    results = call.change(keep_z=False).run_all()
    wide = call.change(x=call.x.float(), weight=call.weight.float(), bias=call.bias.float())
    judge = StatisticsJudge(wide.change(out_dtype=None, precision="ieee"))
    for name in ("mean", "rstd"):
        truth = judge.truth[name]
        error = (results[name].double() - truth).abs().max()
        eager = (judge.eager[name].double() - truth).abs().max()
        assert error <= eager + 2.0**-23 * truth.abs().max(), name


@of_all_numerics
@of_both
def test_special_values(device, op, numerics):
    call = make_special_statistics_call(op, numerics, device)
    judge_call(call.change(keep_z=False))


@pytest.mark.parametrize("numerics", [IEEE, TF32, BF16], ids=str)
def test_equal_rows_of_large_numbers(device, numerics):
    """Four of them overflow fp32."""
    call = make(SCALE_NORM_TRAIN, SHAPES[3], numerics, device, scale="none")
    call.weight.zero_()
    call.bias.fill_(1e38)
    results = call.run_all()
    assert (results["mean"] == call.bias.float()).all()
    rstd = torch.full_like(results["rstd"], call.eps**-0.5)
    torch.testing.assert_close(results["rstd"], rstd)
    assert (results["y"] == call.beta.to(results["y"].dtype)).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@of_all_numerics
@of_both
def test_special_inputs(device, op, numerics, value):
    """One such element of x spoils all columns, as in eager: nobody waits for a part forever."""
    call = make(op, SHAPES[3], numerics, device)
    call.x[700, 7] = value
    assert call.run_all()["y"].isnan().all()


@pytest.mark.parametrize("place", ["rows", "many rows", "columns", "all"])
@pytest.mark.parametrize("shape", [SHAPES[3], SHAPES[5], SHAPES[6]], ids=str)
@pytest.mark.parametrize("numerics", [IEEE, TF32], ids=str)
@of_both
def test_repaired_elements_count(device, op, numerics, shape, place):
    """Rows whose numbers differ by more than the split can hold: computed again behind the product,
    so that the statistics found by it do not have them. Of few rows and many columns the kernel
    that computes them goes on to merge the statistics."""
    call = make(op, shape, numerics, device)
    slices = {"rows": slice(300, 310), "many rows": slice(250, 420), "columns": slice(40, 75)}
    spread, other = (call.weight, call.x) if place == "columns" else (call.x, call.weight)
    spread[slices.get(place, slice(None)), 0] = 1e30
    other[:, 0] = 0
    spread[:, 1] *= 1e-3
    judge_call(call)


# ---- the kernels ----


@pytest.mark.parametrize(
    ("dtype", "keep_z", "kernel"),
    [
        ("bfloat16", False, "group"),
        ("bfloat16", True, "product"),
        ("float16", False, "group"),
        ("float32", False, "product"),
    ],
)
def test_these_kernels_run(device, dtype, keep_z, kernel):
    if not has_sm90_kernels(device):
        pytest.skip("another GPU")
    _, log = run_logged(f"""
        import torch
        from cutlass_fused import nn
        model = nn.LinearScaleBatchNorm1d(4096, 8192, (8192,), precision="ieee")
        model = model.cuda().to(torch.{dtype})
        x = torch.rand(1024, 4096, device="cuda", dtype=torch.{dtype})
        with torch.set_grad_enabled({keep_z}):
            model(x)
        """)
    assert [line.split()[1] for line in log] == ["sm90"], log
    assert [read_plan(line)[1] for line in log] == [f"statistics: {kernel}"], log


LOGITS = (
    Shape(1000, 8200, 264, "ragged, several waves"),
    Shape(300, 1028, 72, "rows of fp32 are aligned, those of 16 bits would not be"),
    Shape(1024, 8192, 1024, "whole tiles"),
)


@pytest.mark.parametrize("shape", LOGITS, ids=str)
@in_16_bits
def test_fp32_results_in_front_of_a_softmax(device, numerics, shape):
    judge_call(make_statistics_call(NORM_SOFTMAX, shape, numerics, device))
    judge_call(make_statistics_call(NORM_SOFTMAX, shape, numerics, device, scale="scalar"))


@pytest.mark.parametrize("numerics", [BF16_FP32, FP16_FP32], ids=str)
def test_fp32_results_of_a_softmax_are_as_accurate(device, numerics):
    """Their sums are added in fp32 from time to time: over such a K it shows."""
    shape = Shape(1024, 8192, 4096, "whole tiles, a long K")
    judge_call(make_statistics_call(NORM_SOFTMAX, shape, numerics, device))


def test_a_large_tile_computes_them(device):
    if not has_sm90_kernels(device):
        pytest.skip("another GPU")
    _, log = run_logged("""
        import torch
        from cutlass_fused import nn
        model = nn.LinearBatchNorm1dScaleSoftmax(1024, 8192).eval().cuda().bfloat16()
        with torch.no_grad():
            model(torch.rand(1024, 1024, device="cuda").bfloat16())
        """)
    assert [read_plan(line)[1:] for line in log] == [["logits in fp32"]], log
    assert read_plan(log[0])[0].startswith("128x256x128B/2x1.cooperative.swapped@"), log


@of_both
def test_forced_tile_has_separate_statistics(device, op):
    call = make(op, SHAPES[3], BF16, device)
    judge = StatisticsJudge(call)
    with force_tile("cublas"):
        judge.check(call.run_all())


@of_all_numerics
@of_both
def test_two_runs_give_the_same_bits(device, op, numerics):
    for shape in (SHAPES[3], SHAPES[5]):
        call = make(op, shape, numerics, device)
        first = call.run_all()
        for _ in range(10):
            assert_same_bits(call.run_all(), first)


# ---- surroundings ----


@of_all_numerics
@of_both
def test_streams_at_once(device, op, numerics):
    """Blocks that wait for each other, of calls in four streams: all of them end, and share no
    workspace."""
    shape = Shape(1000, 4104, 264, "more tiles than SMs, in groups in 16 bits")
    calls = [make(op, shape, numerics, device, seed=seed) for seed in range(4)]
    expected = [call.run_all() for call in calls]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in calls]
    results = [[] for _ in calls]
    # The host queues all of them before the first one runs: else none would be beside another.
    torch.cuda._sleep(50_000_000)
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        for call, stream, found in zip(calls, streams, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(call.run_all())
    torch.cuda.synchronize()
    for one, many in zip(expected, results, strict=True):
        for found in many:
            assert_same_bits(found, one)


@of_all_numerics
@of_both
def test_graph_replays_with_new_inputs(device, op, numerics):
    """Parts of the run before are no parts of this one."""
    call = make(op, SHAPES[3], numerics, device, momentum=None)
    call.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.run()
    for seed in (1, 2, 3):
        new = make(op, SHAPES[3], numerics, device, seed=seed, momentum=None)
        for name, tensor in call.tensors().items():
            tensor.copy_(new.tensors()[name])
        judge = StatisticsJudge(new)
        graph.replay()
        judge.check({k: t.clone() for k, t in call.name_results(captured).items()})


@of_all_numerics
@of_both
def test_kernels_wait_for_what_they_read(device, op, numerics):
    """x changes right in front of a call and right behind it."""
    shape = Shape(1000, 1032, 264, "in groups in 16 bits")
    check_kernels_wait(*(make(op, shape, numerics, device, seed=seed) for seed in (0, 1)))


@of_all_numerics
def test_twenty_steps_beside_eager(device, numerics):
    """Output, running statistics and their update, as torch.nn.BatchNorm1d has them."""
    call = make(SCALE_NORM_TRAIN, Shape(1000, 264, 72, "ragged"), numerics, device)
    for step in range(20):
        judge = StatisticsJudge(call)
        results = {name: result.clone() for name, result in call.run_all().items()}
        judge.check(results)
        assert int(results["num_batches_tracked"]) == 5 + step
        x = make(
            SCALE_NORM_TRAIN, Shape(1000, 264, 72, "another batch"), numerics, device, seed=step + 1
        ).x
        updated = {name: results[name] for name in call.updated()}
        call = call.change(x=x, **updated)
