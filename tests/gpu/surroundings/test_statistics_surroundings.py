"""What calls with statistics and softmax owe their surroundings: streams, graphs, devices, memory,
no synchronisation, and no kernel that starts before what it reads is written."""

import gc

import pytest
import torch
from accuracy_statistics import StatisticsJudge
from calls import STATISTICS_OPS, TRAIN_OPS
from cases import BF16, FP16_FP32, IEEE, Shape
from cases_statistics import OPS_AND_NUMERICS, make_statistics_call
from check_call import check_memory_is_given_back
from judge_call import assert_same_bits, check_kernels_wait
from layouts import skip_columns

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

SHAPE = Shape(133, 264, 96, "ragged")
IN, OUT = 96, 136
# Each op in fp32 and in 16 bits, and where there is one with a result in fp32.
CALLS = [pair for pair in OPS_AND_NUMERICS if pair[1] in (IEEE, BF16, FP16_FP32)]
of_each = pytest.mark.parametrize(("op", "numerics"), CALLS, ids=str)
momentums = pytest.mark.parametrize("momentum", [0.1, None])

MODULES = {
    "LinearScaleBatchNorm1d": lambda momentum: nn.LinearScaleBatchNorm1d(
        IN, OUT, (OUT,), momentum=momentum, precision="ieee"
    ),
    "LinearBatchNorm1dScaleSoftmax": lambda momentum: nn.LinearBatchNorm1dScaleSoftmax(
        IN, OUT, bn_momentum=momentum, precision="tf32"
    ),
    "BatchNorm1d": lambda momentum: nn.BatchNorm1d(IN, momentum=momentum),
}
modules = pytest.mark.parametrize("kind", MODULES)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def build(kind, momentum, training, device):
    torch.manual_seed(0)
    return MODULES[kind](momentum).to(device).train(training)


# ---- streams ----


@of_each
def test_work_goes_to_the_current_stream(device, op, numerics):
    """x is filled late on a side stream: a kernel on any other stream would read NaN."""
    call = make_statistics_call(op, SHAPE, numerics, device)
    judge = StatisticsJudge(call)
    late = call.change(x=torch.full_like(call.x, torch.nan))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.x.copy_(call.x)
        results = late.run_all()
        late.x.fill_(torch.nan)
    stream.synchronize()
    judge.check(results)


@of_each
def test_kernels_wait_for_what_they_read(device, op, numerics):
    """x changes right in front of a call and right behind it: kernels may start early, but read
    only what is there. Running statistics too pass from one call to the next."""
    shape = Shape(2000, 1032, 64, "kernels that take a while")
    check_kernels_wait(
        *(make_statistics_call(op, shape, numerics, device, seed=seed) for seed in (0, 1))
    )


@pytest.mark.parametrize("op", TRAIN_OPS)
def test_calls_in_a_row_update_in_a_row(device, op):
    """Twenty calls without a pause move the statistics as twenty calls one by one do."""
    call = make_statistics_call(op, SHAPE, IEEE, device, momentum=None)
    slow, quick = call.copy_updated(), call.copy_updated()
    for _ in range(20):
        slow.run()
        torch.cuda.synchronize()
    for _ in range(20):
        quick.run()
    assert_same_bits(quick.updated(), slow.updated())
    assert int(quick.num_batches_tracked) == 24


# ---- graphs ----


@of_each
def test_graph_replays_with_new_inputs(device, op, numerics):
    """Replays read the tensors, not what they held at capture, and update them once each."""
    call = make_statistics_call(op, SHAPE, numerics, device, momentum=None)
    call.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.run()
    for seed in (1, 2):
        new = make_statistics_call(op, SHAPE, numerics, device, seed=seed, momentum=None)
        for name, tensor in call.tensors().items():
            tensor.copy_(new.tensors()[name])
        judge = StatisticsJudge(new)
        for steps in (1, 2):
            graph.replay()
            results = call.name_results(captured)
            expected = new.name_results(new.run())
            assert_same_bits(results, expected)
            if steps == 1:
                judge.check({name: tensor.clone() for name, tensor in results.items()})


@momentums
@in_train_and_eval
@modules
def test_module_in_a_graph(device, kind, training, momentum):
    module, twin = (build(kind, momentum, training, device) for _ in range(2))
    x = torch.randn(70, IN, device=device)
    with torch.no_grad():
        module(x), twin(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        for calls in range(2, 5):
            x.copy_(torch.randn(70, IN, device=device))
            graph.replay()
            assert torch.equal(y, twin(x))
            for name, value in twin.state_dict().items():
                assert torch.equal(module.state_dict()[name], value), name
                if name.endswith("num_batches_tracked"):
                    assert int(value) == calls * training


# ---- synchronisation ----


@pytest.fixture
def sync_debug():
    """Calls to switch errors on where PyTorch would wait for the GPU, and off."""
    torch.cuda.synchronize()
    yield torch.cuda.set_sync_debug_mode
    torch.cuda.set_sync_debug_mode("default")


@momentums
@of_each
def test_ops_do_not_synchronise(device, op, numerics, momentum, sync_debug):
    for scale in ("own", "scalar", "one"):
        call = make_statistics_call(op, SHAPE, numerics, device, scale=scale, momentum=momentum)
        wide = Shape(9, 16392, 64, "two kernels for the softmax")
        other = make_statistics_call(op, wide, numerics, device, scale=scale, momentum=momentum)
        strided = call.change(x=skip_columns(call.x))
        sync_debug("error")
        for each in (call, other, strided):
            each.run()
        sync_debug("default")


@momentums
@in_train_and_eval
@modules
def test_modules_do_not_synchronise(device, kind, training, momentum, sync_debug):
    """Forward and backward, and a batch of one in eval."""
    module = build(kind, momentum, training, device)
    x = torch.randn(70, IN, device=device, requires_grad=True)
    sync_debug("error")
    y = module(x)
    torch.autograd.grad(y, [x, *module.parameters()], torch.ones_like(y))
    with torch.no_grad():
        module(x)
        module.eval()(x[:1])


# ---- devices and memory ----


@of_each
def test_second_device(op, numerics):
    """Tensors decide where a call runs, not the current device."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    assert torch.cuda.current_device() == 0
    for index in (1, 0, 1):
        call = make_statistics_call(op, SHAPE, numerics, torch.device("cuda", index))
        results = call.run_all()
        assert torch.cuda.current_device() == 0
        assert all(result.device.index == index for result in results.values())
        StatisticsJudge(call).check(results)


def poison_blocks(device, *forms):
    """Leaves NaN in a free block for each (shape, dtype): best fits, which others keep apart.
    Returns their addresses, and what must be held on to."""
    blocks, between = [], []
    for shape, dtype in forms:
        blocks.append(torch.full(shape, torch.nan, dtype=dtype, device=device))
        between.append(torch.empty(2**21, dtype=torch.uint8, device=device))
    return [block.data_ptr() for block in blocks], between


@of_each
def test_every_element_is_written(device, op, numerics):
    """y lies in memory full of NaN, as does what is computed before it; the address shows it."""
    shape = Shape(1030, 1032, 72, "more than 1 MB")
    call = make_statistics_call(op, shape, numerics, device).change(keep_z=False)
    judge, updated = StatisticsJudge(call), call.copy_updated()
    gc.collect()  # or blocks may become free in between
    torch.cuda.empty_cache()
    forms = [(call.result_shape, call.result_dtype)]
    if call.result_dtype != torch.float32:
        forms.append((call.result_shape, torch.float32))
    (address, *_), between = poison_blocks(device, *forms)
    results = updated.name_results(updated.run())
    assert results["y"].data_ptr() == address and between
    judge.check(results)


@of_each
def test_nothing_else_is_written(device, op, numerics):
    """Inputs and the surroundings of all tensors keep their bits, but for what is updated."""
    kinds = {"bias": "strided", "scale": "offset", "vectors": "offset", "statistics": "strided"}
    call = make_statistics_call(op, SHAPE, numerics, device, **kinds)
    updated = call.copy_updated()
    updated.run()
    for name, tensor in call.tensors().items():
        after = updated.tensors()[name]
        memory = [
            torch.as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0).clone()
            for t in (tensor, after)
        ]
        if name in call.updated():
            # Only where the elements lie may the memory differ.
            for whole in memory:
                own = torch.as_strided(
                    whole, tensor.shape, tensor.stride(), tensor.storage_offset()
                )
                own.zero_()
        a, b = (whole.view(torch.uint8) for whole in memory)
        assert torch.equal(a, b), name


@pytest.mark.parametrize("op", STATISTICS_OPS)
def test_memory_is_given_back(device, op):
    check_memory_is_given_back(make_statistics_call(op, SHAPE, IEEE, device))
