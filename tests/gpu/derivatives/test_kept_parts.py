"""Parts of trained weights that are kept while the weights stand still: every bit is that of a step
which keeps nothing, whoever writes to the weights, and an unchanged weight is not split again."""

import ctypes

import pytest
import torch
from tiles import has_sm90_kernels
from torch.profiler import ProfilerActivity, profile

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.reference._split_weight import compute_checksum
from cutlass_fused.weights import splits as weight_splits

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
M, N, K = 2048, 3072, 2560  # as in test_shared_splits.py
PRECISIONS = ("ieee", "tf32")
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


@pytest.fixture(autouse=True)
def seed(device):
    if not has_sm90_kernels(device):
        pytest.skip("needs kernels for compute capability 9.0")
    torch.manual_seed(0)
    cutlass_fused.invalidate()
    yield
    cutlass_fused.invalidate()


LAYERS = {
    "linear": lambda **options: nn.Linear(K, N, **options),
    "leaky_relu": lambda **options: nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1, **options),
    "batch_norm": lambda **options: nn.LinearScaleBatchNorm1d(K, N, (N,), **options),
    "softmax": lambda **options: nn.LinearBatchNorm1dScaleSoftmax(K, N, **options),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def make(device, name="linear", precision="ieee"):
    layer = LAYERS[name](precision=precision, device=device)
    x = torch.randn(M, K, device=device, requires_grad=True)
    return layer, x, torch.randn(M, N, device=device)


def get_weight(layer):
    return getattr(layer, "gemm", layer).weight


def step(layer, x, grad):
    parameters = [p for p in layer.parameters() if p.requires_grad]
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *parameters], grad)]


def step_alone(layer, x, grad):
    """Keeps nothing, and leaves what is kept as it is."""
    with weight_splits.split_in_every_call():
        return step(layer, x, grad)


def is_right(layer, x, grad):
    return all(map(torch.equal, step(layer, x, grad), step_alone(layer, x, grad)))


def list_kernels(run):
    """The names of the kernels that split or look at a matrix, in order."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    events = sorted(profiled.events(), key=lambda event: event.time_range.start)
    words = "check_weight", "split_rows_again", "split_rows", "split_columns"
    return [word for e in events for word in words if f"{word}<" in e.name or f"{word}(" in e.name]


# ---- the ops ----


SHAPES = [
    (1, 64),
    (3, 36),  # K is no multiple of 8, nor of a block
    (5, 260),
    (1000, 512),  # several rows a block
    (700, 2052),
    (300, 4100),  # more than a block of threads holds at first
    (40, 16388),  # read twice
    (5000, 1024),  # blocks take several
]


@pytest.mark.parametrize("shape", SHAPES)
@each_precision
def test_the_parts_are_those_of_split_weight(device, precision, shape):
    weight = torch.randn(shape, device=device)
    weight[0, :4] = torch.tensor([0.0, -0.0, torch.nan, 1e-40])
    split, state = ops.split_weight_checked(weight, precision)
    for _ in range(3):
        assert torch.equal(split, ops.split_weight(weight, precision))
        assert torch.equal(state[:2], compute_checksum(weight))
        before = split.clone()
        split.fill_(7)  # which shows what is written
        ops.split_weight_if_changed(weight, split, state, precision)
        assert (split == 7).all() and torch.equal(state[:2], compute_checksum(weight))
        split.copy_(before)
        weight.view(-1)[-1] += 1
        ops.split_weight_if_changed(weight, split, state, precision)


CHANGES = {
    "two elements": lambda w: w.view(-1).__setitem__([5, 900_000], w.view(-1)[[900_000, 5]]),
    "two rows": lambda w: w.__setitem__([3, 4], w[[4, 3]]),
    "the sign of a zero": lambda w: w[0, 1].neg_(),
    "one bit of the last": lambda w: w.view(torch.int32)[-1, -1].bitwise_xor_(1),
    "the payload of a NaN": lambda w: w.view(torch.int32)[0, 2].bitwise_xor_(1),
    "nothing": lambda w: w.mul_(1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_a_change(device, change):
    weight = torch.randn(N, K, device=device)
    weight[0, :3] = torch.tensor([0.0, 0.0, torch.nan])
    split, state = ops.split_weight_checked(weight)
    CHANGES[change](weight)
    split.fill_(7)
    ops.split_weight_if_changed(weight, split, state)
    assert bool((split == 7).all()) == (change == "nothing")
    assert torch.equal(state[:2], compute_checksum(weight))
    if change != "nothing":
        assert torch.equal(split, ops.split_weight(weight))


def test_in_a_captured_graph(device):
    """A replay splits a weight that has changed, and no other."""
    weight, x = torch.randn(N, K, device=device), torch.randn(M, K, device=device)
    split, state = ops.split_weight_checked(weight)
    ops.linear(x, weight, None, "ieee", None, split)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.split_weight_if_changed(weight, split, state)
        y = ops.linear(x, weight, None, "ieee", None, split)
    for i in range(6):
        if i % 2:
            weight.normal_()
        graph.replay()
        assert bool(state[2] >> 32) == bool(i % 2)
        assert torch.equal(y, ops.linear(x, weight))


# ---- steps ----


@each_layer
@each_precision
def test_an_unchanged_weight_is_split_twice_and_then_looked_at(device, precision, name):
    call = make(device, name, precision)
    runs = [list_kernels(lambda: step(*call)) for _ in range(4)]
    assert runs[0].count("split_rows_again") == runs[0].count("check_weight") == 0
    assert (runs[1].count("split_rows_again"), runs[1].count("check_weight")) == (1, 0)
    for run in runs[2:]:
        assert (run.count("split_rows_again"), run.count("check_weight")) == (1, 1)
        assert len(run) == len(runs[0]) + 1  # one more launch
    assert is_right(*call)


def write_data(weight, new):
    weight.data.copy_(new)


def write_memory(weight, new):
    """As another library does, of which PyTorch knows nothing."""
    torch.cuda.synchronize()
    runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.partition('.')[0]}")  # PyTorch's own
    copy, on_the_device = runtime.cudaMemcpy, 3
    copy.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert copy(weight.data_ptr(), new.data_ptr(), 4 * new.numel(), on_the_device) == 0


def write_storage(weight, new):
    alias = torch.empty(0, device=weight.device).set_(weight.untyped_storage())
    alias.view_as(new).copy_(new)


def write_counted(weight, new):
    with torch.no_grad():
        weight.copy_(new)


def replace_data(weight, new):
    weight.data = new.clone()


def swap_two(weight, new):
    weight.data.view(-1)[[7, 5_000_000]] = weight.data.view(-1)[[5_000_000, 7]]


def step_uncounted(weight, new):
    weight.grad = new
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()
    weight.grad = None


WRITES = (write_data, write_memory, write_storage, write_counted, replace_data, swap_two)


@pytest.mark.parametrize("write", [*WRITES, step_uncounted])
@each_layer
def test_each_step_reads_the_weight_that_is_there(device, name, write):
    layer, x, grad = make(device, name)
    weight = get_weight(layer)
    for i in range(12):
        if i % 4 == 3:
            write(weight, torch.randn(N, K, device=device))
        assert is_right(layer, x, grad)


def test_a_write_between_forward_and_backward(device):
    """What a call between leaves is what the backward pass would read if nothing were kept."""
    layer, x, grad = make(device)

    def run():
        y = layer(x)
        layer.weight.data.mul_(-3)
        layer(x)
        return torch.autograd.grad(y, [x, layer.weight], grad)

    step(layer, x, grad)
    step(layer, x, grad)
    for _ in range(3):
        before = layer.weight.detach().clone()
        ours = run()
        layer.weight.data.copy_(before)
        with weight_splits.split_in_every_call():
            assert all(map(torch.equal, ours, run()))


@each_layer
def test_accumulated_gradients(device, name):
    layer, x, grad = make(device, name)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def run():
        for _ in range(2):
            optimizer.zero_grad()
            for part, of_part in zip(x.detach().split(M // 4), grad.split(M // 4), strict=True):
                layer(part.requires_grad_()).backward(of_part)
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
            optimizer.step()
            assert len(weight_splits._trained) == 0
        return [p.detach().clone() for p in layer.state_dict().values()]

    start = {key: value.clone() for key, value in layer.state_dict().items()}
    ours = run()
    layer.load_state_dict(start)
    with weight_splits.split_in_every_call():
        assert all(map(torch.equal, ours, run()))


def test_evaluation_with_gradients_enabled(device):
    layer, x, _ = make(device, "leaky_relu")
    results = [layer(x).detach() for _ in range(4)]
    assert list_kernels(lambda: layer(x))[:2] == ["check_weight", "split_rows_again"]
    assert all(torch.equal(results[0], result) for result in results)


def test_two_streams(device):
    """Parts belong to one stream: where they are made again late on it, another reads its own."""
    layer, x, grad = make(device)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(4):
        new = torch.randn(N, K, device=device)
        torch.cuda.synchronize()
        with torch.cuda.stream(first):
            for _ in range(3):
                step(layer, x, grad)
            layer.weight.data.copy_(new)
            second.wait_stream(first)
            torch.cuda._sleep(50_000_000)
            ours = step(layer, x, grad)
        with torch.cuda.stream(second):
            others = step(layer, x, grad)
        torch.cuda.synchronize()
        expected = step_alone(layer, x, grad)
        assert all(map(torch.equal, ours, expected)) and all(map(torch.equal, others, expected))


def test_a_graph_captured_behind_kept_parts(device):
    """It splits in each replay, and holds nothing that is kept."""
    layer, x, grad = make(device, "leaky_relu")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(layer, x, grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = step(layer, x, grad)
    cutlass_fused.invalidate()
    torch.cuda.synchronize()
    for _ in range(3):
        layer.gemm.weight.data.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert all(map(torch.equal, results, step_alone(layer, x, grad)))


def test_nothing_synchronises(device):
    call = make(device)
    step(*call)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            step(*call)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory(device):
    """The peak of accumulated steps is as if nothing were kept; a step of the optimizer gives all
    back before it begins."""
    layers = torch.nn.Sequential(*(nn.Linear(K, K, device=device) for _ in range(4)))
    optimizer = torch.optim.AdamW(layers.parameters())
    x = torch.randn(M, K, device=device, requires_grad=True)

    def run():
        for _ in range(4):
            layers(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        x.grad = None

    def measure():
        run()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before

    ours, left = measure()
    with weight_splits.split_in_every_call():
        alone, _ = measure()
    parts = 4 * K * K
    assert left == 0 and ours <= alone + parts  # of one layer: while the last gradient is added
