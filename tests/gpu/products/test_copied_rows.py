"""16-bit rows that TMA cannot read are copied, and y back from where it can write, on SM90."""

import pytest
import torch
from accuracy import Judge
from calls import LEAKY, LINEAR, OPS
from cases import BF16, BF16_FP32, FP16, Shape, make_call
from check_call import (
    check_memory_is_given_back,
    check_nothing_else_is_written,
    poison_memory,
    run_poisoned,
)
from layouts import misalign_rows
from tiles import force_tile, has_sm90_kernels, list_cublas, list_sm80_tiles, list_sm90_tiles

pytestmark = pytest.mark.gpu

# From M = 512 on y is copied back.
SHAPES = (
    Shape(65, 136, 65, "odd K"),
    Shape(600, 520, 265, "odd K of several stages, more tiles"),
    Shape(511, 77, 72, "odd N, y written as it lies"),
    Shape(512, 77, 72, "odd N, y copied back"),
    Shape(1030, 129, 65, "odd N and K, more rows and columns than whole tiles"),
)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture(autouse=True)
def need_sm90(device):
    if not has_sm90_kernels(device):
        pytest.skip("no SM90 kernels: nothing is copied")


def round_up(columns):
    return -(-columns // 8) * 8


@each_shape
@pytest.mark.parametrize("numerics", [FP16, BF16, BF16_FP32], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_only_the_elements_count(device, op, numerics, shape):
    """The copies lie in memory full of NaN, and are wider than the rows."""
    call = make_call(op, shape, numerics, device)
    judge = Judge(call)
    for rows, columns in ((shape.m, shape.k), (shape.n, shape.k), (shape.m, shape.n)):
        poison_memory((rows, round_up(columns)), call.x.dtype, device)
    judge.check(run_poisoned(call))


@each_shape
def test_every_tile(device, shape):
    """Forced, in turn, among them those of SM80, which read the rows where they lie."""
    call = make_call(LINEAR, shape, BF16, device)
    judge = Judge(call)
    for tile in (*list_sm90_tiles(call), *list_sm80_tiles(call)[:1], *list_cublas(call)):
        with force_tile(tile):
            result = run_poisoned(call)
        judge.check_bound(result)


def test_nothing_around_them_is_written(device):
    """x and weight lie in the middle of memory that keeps its bits."""
    call = make_call(LEAKY, SHAPES[-1], BF16, device)
    call = call.change(x=misalign_rows(call.x), weight=misalign_rows(call.weight))
    Judge(call).check(check_nothing_else_is_written(call))


@each_shape
def test_copies_are_of_this_call(device, shape):
    """Made anew on the current stream, also when a graph is replayed."""
    call = make_call(LEAKY, shape, BF16, device)
    late = call.change(x=torch.full_like(call.x, torch.nan), weight=call.weight.clone())
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late.x.copy_(call.x)
        result = late.run()
        late.x.fill_(torch.nan)
    stream.synchronize()
    Judge(call).check(result)

    late.x.copy_(call.x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = late.run()
    for seed in (1, 2):
        new = make_call(LEAKY, shape, BF16, device, seed=seed)
        for name, tensor in late.tensors().items():
            tensor.copy_(new.tensors()[name])
        result.fill_(torch.nan)
        graph.replay()
        kept = [call.run() for _ in range(3)]  # neither writes into what the other uses
        graph.replay()
        assert torch.equal(result, new.run())
        assert all(torch.equal(other, kept[0]) for other in kept)
        Judge(new).check(result)


@pytest.mark.parametrize("forced", ["", "cublas"])
def test_memory_is_given_back(device, forced):
    call = make_call(LEAKY, SHAPES[-1], BF16, device)
    with force_tile(forced):
        check_memory_is_given_back(call)
