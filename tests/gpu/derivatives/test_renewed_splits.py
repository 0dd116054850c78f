"""Splits of trained weights that stay from call to call: what is left of them is compared with the
weight, and is what a new split would be, bit for bit, whoever wrote to the weight."""

import time

import pytest
import torch
from split_layout import cut, cut_kept, draw_weight
from tiles import has_sm90_kernels
from torch.utils.checkpoint import checkpoint

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.weights import splits as weight_splits

pytestmark = pytest.mark.gpu

ops = torch.ops.cutlass_fused
M, N, K = 2048, 3072, 2560  # large enough for split rows in all directions, and "tf32" too
each_precision = pytest.mark.parametrize("precision", ["ieee", "tf32"])
# Rows in one warp, in several, in all threads, and longer than they hold.
SHAPES = [(1, 40), (70, 64), (33, 232), (130, 1000), (64, 4096), (9, 4100), (5, 20001)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture(autouse=True)
def seed(device):
    if not has_sm90_kernels(device):
        pytest.skip("needs kernels for compute capability 9.0")
    torch.manual_seed(0)
    cutlass_fused.invalidate()


# ---- the ops ----


@pytest.mark.parametrize("aligned", [True, False])
@each_precision
@each_shape
def test_new(device, shape, precision, aligned):
    weight = draw_weight(shape, aligned)
    _, split = cut_kept(ops.keep_split(weight, precision), shape, precision)
    assert torch.equal(split, cut(ops.split_weight(weight, precision), shape, precision))


def next_number(row):
    row[-1] = torch.nextafter(row[-1], row[-1] + 1)


def sign_of_zero(row):
    row[0] = -row[0]


def swap(row):
    row[[3, 4]] = row[[4, 3]]


def swap_threads(row):
    row[[3, 11]] = row[[11, 3]]


def reverse(row):
    row.copy_(row.flip(0))


def nan(row):
    row[7] = torch.nan


CHANGES = [next_number, sign_of_zero, swap, swap_threads, reverse, nan]


@pytest.mark.parametrize("change", CHANGES)
@each_precision
@each_shape
def test_rows_that_changed_and_no_others(device, shape, precision, change):
    weight = draw_weight(shape)
    weight[:, 0] = 0.0
    kept = ops.keep_split(weight, precision)
    marks, split = (part.clone() for part in cut_kept(kept, shape, precision))
    changed = torch.arange(0, shape[0], 3, device="cuda")
    for row in changed.tolist():
        change(weight[row])
    is_changed = torch.zeros(shape[0], dtype=torch.bool, device="cuda")
    is_changed[changed] = True
    expected = cut(ops.split_weight(weight, precision), shape, precision)
    # What is not split anew is not written to.
    poisoned = kept.clone()
    poisoned[-(-shape[0] * 8 // 256) * 256 :] = 0x55
    ops.renew_split(poisoned, weight, precision)
    ops.renew_split(kept, weight, precision)
    for found, of_others in ((kept, split), (poisoned, torch.full_like(split, 0x55))):
        new_marks, new = cut_kept(found, shape, precision)
        assert torch.equal(new_marks != marks, is_changed)
        assert torch.equal(new[is_changed], expected[is_changed])
        assert torch.equal(new[~is_changed], of_others[~is_changed])


def test_marks_differ_from_row_to_row(device):
    weight = torch.arange(1 << 20, device="cuda").view(-1, 1).expand(-1, 40) * 2.0**-10
    marks, _ = cut_kept(ops.keep_split(weight.contiguous(), "tf32"), weight.shape, "tf32")
    assert marks.unique().numel() == 1 << 20


def test_bad_arguments(device):
    weight = torch.randn(64, 128, device=device)
    kept = ops.keep_split(weight, "ieee")
    for wrong in (kept[:-1], kept.view(torch.int8), kept.cpu()):
        with pytest.raises(RuntimeError, match="renew_split: kept must be what keep_split"):
            ops.renew_split(wrong, weight, "ieee")
    with pytest.raises(RuntimeError, match="renew_split: kept must be what keep_split"):
        ops.renew_split(kept, weight, "tf32")
    with pytest.raises(RuntimeError, match="keep_split: weight must be float32, in rows"):
        ops.keep_split(weight.t(), "ieee")


# ---- calls ----


def make_layers(device, precision):
    options = {"precision": precision, "device": device}
    program = cutlass_fused.epilogue(lambda acc, bias: torch.tanh(acc + bias))
    bias = torch.randn(N, device=device)

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(N, K, device=device) / 50)

        def forward(self, x):
            return program(x, self.weight, bias=bias, precision=precision)

    return {
        "linear": lambda: nn.Linear(K, N, **options),
        "leaky_relu": lambda: nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1, **options),
        "batch_norm": lambda: nn.LinearScaleBatchNorm1d(K, N, (N,), **options),
        "softmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(K, N, **options),
        "program": Program,
    }


each_layer = pytest.mark.parametrize(
    "name", ["linear", "leaky_relu", "batch_norm", "softmax", "program"]
)


def find_weight(layer):
    return layer.gemm.weight if hasattr(layer, "gemm") else layer.weight


def step(layer, x, grad):
    parameters = [p for p in layer.parameters() if p.requires_grad]
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *parameters], grad)]


def step_anew(layer, x, grad):
    with weight_splits.split_in_every_call():
        return step(layer, x, grad)


def draw(device):
    return torch.randn(M, K, device=device, requires_grad=True), torch.randn(M, N, device=device)


def find_kept(layer):
    return weight_splits._trained._entries[find_weight(layer).data_ptr()].kept


def are_equal(found, expected):
    return all(map(torch.equal, found, expected))


@each_layer
@each_precision
def test_parts_stay_from_the_second_call_on(device, precision, name):
    layer, (x, grad) = make_layers(device, precision)[name](), draw(device)
    expected = step_anew(layer, x, grad)
    assert are_equal(step(layer, x, grad), expected) and find_kept(layer) is None
    assert are_equal(step(layer, x, grad), expected)
    kept = find_kept(layer)
    assert kept.numel() > 0
    assert are_equal(step(layer, x, grad), expected) and find_kept(layer) is kept
    # They are what the products read.
    kept[-(-N * 8 // 256) * 256 :] = 0
    assert not are_equal(step(layer, x, grad)[:1], expected[:1])


def write_data(weight, new):
    weight.data.copy_(new)


def write_memory(weight, new):
    alias = torch.empty(0, device=weight.device).set_(weight.untyped_storage())
    alias.view_as(new).copy_(new)


def write_one_number(weight, new):
    weight.data[N // 2, K // 2] = new[0, 0]


def write_counted(weight, new):
    with torch.no_grad():
        weight.copy_(new)


@pytest.mark.parametrize("write", [write_counted, write_data, write_memory, write_one_number])
@each_layer
def test_each_call_reads_the_weight_that_is_there(device, name, write):
    layer, (x, grad) = make_layers(device, "ieee")[name](), draw(device)
    for _ in range(4):
        write(find_weight(layer), torch.randn(N, K, device=device))
        expected = step_anew(layer, x, grad)
        for _ in range(2):
            assert are_equal(step(layer, x, grad), expected)
    assert find_kept(layer).numel() > 0


@pytest.mark.parametrize("fused", [False, True])
def test_accumulation_with_an_optimizer(device, fused):
    ours, plain = (make_layers(device, "ieee")["linear"]() for _ in range(2))
    plain.load_state_dict(ours.state_dict())
    optimizers = [torch.optim.AdamW(layer.parameters(), fused=fused) for layer in (ours, plain)]
    for _ in range(3):
        for _ in range(3):
            x, grad = draw(device)
            ours(x).backward(grad)
            with weight_splits.split_in_every_call():
                plain(x).backward(grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert len(weight_splits._trained) == 0
        assert are_equal(ours.parameters(), plain.parameters())


def test_a_graph_of_the_call_before(device):
    """Its parts may be compared meanwhile."""
    layer, (x, grad) = make_layers(device, "ieee")["linear"](), draw(device)
    expected = step_anew(layer, x, grad)[1:]
    results = [layer(x) for _ in range(4)]
    for y in results:
        assert are_equal(torch.autograd.grad(y, [x, *layer.parameters()], grad), expected)


def test_checkpoints(device):
    """Which compare what the second call saves with what the first one did."""
    layer, (x, grad) = make_layers(device, "ieee")["linear"](), draw(device)
    expected = step_anew(layer, x, grad)
    for _ in range(3):
        y = checkpoint(layer, x, use_reentrant=False)
        found = [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], grad)]
        assert are_equal(found, expected)
    assert find_kept(layer).numel() > 0


def settle(least):
    """The bytes that tensors take. The thread of a backward pass may let go of its last results
    after that has returned."""
    until = time.monotonic() + 5
    while torch.cuda.memory_allocated() > least and time.monotonic() < until:
        time.sleep(0.01)
    return torch.cuda.memory_allocated()


def test_memory_goes_with_the_weight(device):
    layer, (x, grad) = make_layers(device, "ieee")["linear"](), draw(device)
    step_anew(layer, x, grad)  # what libraries keep, too
    weight = layer.weight.numel() * 4
    before = settle(0.5 * weight + sum(each.nbytes for each in (*layer.parameters(), x, grad)))
    for _ in range(2):
        step(layer, x, grad)
    kept = settle(before + 1.1 * weight) - before
    assert 0.9 < kept / weight < 1.1
    size = sum(p.numel() * 4 for p in layer.parameters())
    layer.cpu()
    assert torch.cuda.memory_allocated() < before - 0.9 * size


def test_a_graph_that_is_captured_has_parts_of_its_own(device):
    layer, (x, grad) = make_layers(device, "ieee")["leaky_relu"](), draw(device)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(layer, x, grad)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = step(layer, x, grad)
    cutlass_fused.invalidate()
    for _ in range(2):
        find_weight(layer).data.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert are_equal(results, step_anew(layer, x, grad))


def test_two_streams(device):
    layer, (x, grad) = make_layers(device, "ieee")["linear"](), draw(device)
    expected = step_anew(layer, x, grad)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    for i in range(8):
        with torch.cuda.stream(streams[i // 2 % 2]):
            assert are_equal(step(layer, x, grad), expected)
        torch.cuda.synchronize()
