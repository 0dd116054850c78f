"""What a call owes its surroundings: streams, graphs, devices, memory, no synchronisation."""

import gc
import itertools

import pytest
import torch
from accuracy import Judge
from calls import LEAKY, LINEAR, OPS
from cases import BF16, FP16, IEEE, ONE_OUTPUT, Shape, make_call
from check_call import check_memory_is_given_back, check_nothing_else_is_written, poison_memory
from layouts import skip_columns
from tiles import force_tile, list_tiles

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

SHAPE = Shape(133, 264, 96, "ragged")
LONG = Shape(70, 136, 2056, "stream-K with partial sums in its workspace")


# ---- streams ----


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_work_goes_to_the_current_stream(device, op, numerics):
    """x is filled late on a side stream: a kernel on any other stream would read NaN."""
    call = make_call(op, SHAPE, numerics, device)
    judge = Judge(call)
    late = call.change(x=torch.full_like(call.x, torch.nan))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.x.copy_(call.x)
        result = late.run()
        late.x.fill_(torch.nan)
    stream.synchronize()
    judge.check(result)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_two_streams_at_once(device, numerics):
    """Calls that overlap share nothing, no workspace of stream-K: every result has the bits of a
    lone run."""
    calls = [make_call(LEAKY, LONG, numerics, device, seed=seed) for seed in (0, 1)]
    for tile in list_tiles(calls[0]):
        with force_tile(tile):
            expected = [call.run() for call in calls]
            torch.cuda.synchronize()
            streams, results = [torch.cuda.Stream(), torch.cuda.Stream()], [[], []]
            for _ in range(20):
                for call, stream, kept in zip(calls, streams, results, strict=True):
                    with torch.cuda.stream(stream):
                        kept.append(call.run())
            torch.cuda.synchronize()
        for one, many in zip(expected, results, strict=True):
            assert all(torch.equal(one, result) for result in many), tile


# ---- graphs ----


def capture(call):
    """The graph of one call, and the tensor that it writes."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call.run()
    return graph, result


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_graph_replays_with_new_inputs(device, op, numerics):
    """Replays read the tensors, not what they held at capture: x, weight and each vector."""
    call = make_call(op, SHAPE, numerics, device)
    graph, result = capture(call)
    for seed in (1, 2):
        new = make_call(op, SHAPE, numerics, device, seed=seed)
        for name, tensor in call.tensors().items():
            tensor.copy_(new.tensors()[name])
        result.fill_(torch.nan)
        graph.replay()
        assert torch.equal(result, new.run())
        Judge(new).check(result)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_graph_keeps_its_workspace(device, numerics):
    """Calls between replays may not write into what the graph uses, with any tile."""
    call = make_call(LEAKY, LONG, numerics, device)
    for tile in list_tiles(call):
        with force_tile(tile):
            graph, result = capture(call)
            expected = call.run()
            for _ in range(3):
                result.fill_(torch.nan)
                kept = [call.run() for _ in range(4)]
                graph.replay()
                kept += [call.run() for _ in range(4)]
                for other in (result, *kept):
                    assert torch.equal(other, expected), tile


def test_functional_with_tensor_scale_is_captured(device):
    """A scale that was read back to the host would end the capture."""
    call = make_call(LEAKY, SHAPE, BF16, device)
    scale = torch.tensor(2.0, device=device)

    def run():
        return functional.linear_scale_leaky_relu(call.x, call.weight, call.bias, scale, 0.1)

    graph = torch.cuda.CUDAGraph()
    run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = run()
    scale.fill_(-3.0)
    graph.replay()
    assert torch.equal(result, run())


# ---- synchronisation ----


@pytest.fixture
def forbid_synchronisation():
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_ops_do_not_synchronise(device, op, numerics, forbid_synchronisation):
    for kind in ("own", "scalar", "one", "strided"):
        torch.cuda.set_sync_debug_mode("default")
        call = make_call(op, SHAPE, numerics, device, scale=kind)
        torch.cuda.set_sync_debug_mode("error")
        call.run()
        call.change(x=skip_columns(call.x)).run()


@pytest.mark.parametrize("shape", [(), (1,), (264,)], ids=str)
def test_functional_does_not_synchronise(device, shape, forbid_synchronisation):
    """Forward and backward, with a scale on the GPU that asks for a gradient."""
    torch.cuda.set_sync_debug_mode("default")
    call = make_call(LEAKY, SHAPE, IEEE, device)
    leaves = [t.requires_grad_() for t in (call.x, call.weight, call.bias)]
    scale = torch.full(shape, 1.5, device=device, requires_grad=True)
    torch.cuda.set_sync_debug_mode("error")
    y = functional.linear_scale_leaky_relu(*leaves, scale, 0.1)
    torch.autograd.grad(y, [*leaves, scale], torch.ones_like(y))


# ---- devices ----


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_second_device(op, numerics):
    """Tensors decide where a call runs, not the current device."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    assert torch.cuda.current_device() == 0
    for index in (1, 0, 1):
        call = make_call(op, SHAPE, numerics, torch.device("cuda", index))
        result = call.run()
        assert result.device.index == index and torch.cuda.current_device() == 0
        Judge(call).check(result)


# ---- memory ----


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_every_element_is_written(device, op, numerics):
    """The result lies in memory full of NaN; the address shows that it does."""
    call = make_call(op, Shape(1030, 1032, 72, "more than 1 MB"), numerics, device)
    judge = Judge(call)
    gc.collect()  # what it finds later would be free at the result's turn
    torch.cuda.empty_cache()
    address = poison_memory(call.result_shape, call.result_dtype, device)
    result = call.run()
    assert result.data_ptr() == address
    judge.check(result)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_nothing_else_is_written(device, op, numerics):
    """Inputs and their surroundings keep their bits."""
    call = make_call(op, SHAPE, numerics, device, bias="strided", scale="offset", vectors="offset")
    check_nothing_else_is_written(call)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_two_runs_give_the_same_bits(device, op, numerics):
    for shape in (SHAPE, LONG, Shape(37, 77, 51, "odd"), Shape(1030, 1032, 72, "many tiles")):
        call = make_call(op, shape, numerics, device)
        first = call.run()
        assert all(torch.equal(first, call.run()) for _ in range(5)), str(shape)


@pytest.mark.parametrize("numerics", ONE_OUTPUT, ids=str)
def test_rows_do_not_depend_on_their_batch(device, numerics):
    """With one tile a row's bits are the same whatever other rows there are."""
    call = make_call(LINEAR, SHAPE, numerics, device)
    for tile in list_tiles(call):
        if "streamk" in tile or tile == "cublas":
            continue  # the cuts through K depend on the number of tiles, and cuBLAS's kernel on M
        with force_tile(tile):
            whole, part = call.run(), call.take_rows(slice(0, 40)).run()
        assert torch.equal(whole[:40], part), tile


def test_no_result_of_an_earlier_weight(device):
    """Weights change in place, through .data, and by reuse of their memory."""
    call = make_call(LINEAR, SHAPE, FP16, device)
    for seed, change in itertools.product(
        (1, 2),
        (
            lambda weight, new: weight.copy_(new),
            lambda weight, new: weight.data.copy_(new),
            lambda weight, new: setattr(weight, "data", new),
        ),
    ):
        new = make_call(LINEAR, SHAPE, FP16, device, seed=seed).weight
        call.run()
        change(call.weight, new)
        Judge(call).check(call.run())


def test_memory_is_given_back(device):
    check_memory_is_given_back(make_call(LEAKY, LONG, IEEE, device))
