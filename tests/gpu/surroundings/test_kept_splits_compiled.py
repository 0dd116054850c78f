"""Graphs of torch.compile outside of CUDA graphs find what is kept of a weight when they run."""

import pytest
import torch

import cutlass_fused
from cutlass_fused import fp32_matmul, nn
from cutlass_fused.weights import splits as weight_splits

pytestmark = pytest.mark.gpu

# The smallest weight of which a split is kept; few rows, so that the split would take long.
WIDTH, ROWS = 2048, 70
MODULES = {
    "Linear": lambda: nn.Linear(WIDTH, WIDTH, precision="ieee"),
    "LinearScaleLeakyReLU": lambda: nn.LinearScaleLeakyReLU(
        WIDTH, WIDTH, 2.0, 0.1, precision="ieee"
    ),
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(
        WIDTH, WIDTH, (WIDTH,), precision="ieee"
    ),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(
        WIDTH, WIDTH, precision="ieee"
    ),
}


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Also where a product without a split would be multiplied as it lies."""
    torch.ops.cutlass_fused.force_tile("split_rows")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    cutlass_fused.invalidate()
    yield
    cutlass_fused.invalidate()
    torch._dynamo.reset()


@pytest.fixture
def splits(monkeypatch):
    """What was split by Python, in order."""
    made, split = [], weight_splits._cache._split

    def count(weight, precision):
        made.append(weight)
        return split(weight, precision)

    monkeypatch.setattr(weight_splits._cache, "_split", count)
    return made


def make_module(name="Linear"):
    return MODULES[name]().cuda().eval(), torch.randn(ROWS, WIDTH, device="cuda")


def run_anew(module, x):
    with weight_splits.split_in_every_call():
        return module(x)


@pytest.mark.parametrize("name", MODULES)
@torch.no_grad()
def test_an_unchanged_weight_is_split_once(splits, name):
    module, x = make_module(name)
    compiled = torch.compile(module, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), run_anew(module, x))
    assert len(splits) == 1
    assert torch.equal(module(x), compiled(x))  # and is eager's too
    assert len(splits) == 1


def step(module):
    module.weight.grad = torch.randn_like(module.weight)
    torch.optim.AdamW(module.parameters(), lr=1.0, fused=True).step()


def write_behind_its_back(module):
    module.weight.data.mul_(-2)
    cutlass_fused.invalidate(module)


CHANGES = {
    "write": lambda module: module.weight.mul_(2),
    "load": lambda module: module.load_state_dict(make_module()[0].state_dict()),
    "step of a fused optimizer": step,
    "compiled write": lambda module: torch.compile(lambda w: w.mul_(2))(module.weight),
    "data and invalidate": write_behind_its_back,
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_changed_weight_is_split_anew(splits, change):
    module, x = make_module()
    compiled = torch.compile(module)
    before = compiled(x).clone()
    CHANGES[change](module)
    for _ in range(2):
        y = compiled(x)
        assert torch.equal(y, run_anew(module, x)) and not torch.equal(y, before)
    assert len(splits) == 2


@torch.no_grad()
def test_a_cuda_graph_splits_in_each_run(splits):
    module, x = make_module()
    compiled = torch.compile(module, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(x).clone(), run_anew(module, x))
        module.weight.mul_(-2)
    assert not splits


@torch.no_grad()
def test_a_capture_of_what_is_compiled(splits):
    """By hand: what was kept before is not read, since the graph would not notice a change."""
    module, x = make_module()
    compiled = torch.compile(module)
    compiled(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    module.weight.mul_(-2)
    graph.replay()
    assert torch.equal(y, run_anew(module, x))
    assert len(splits) == 1


@torch.no_grad()
def test_other_streams(splits):
    module, x = make_module()
    compiled = torch.compile(module)
    expected = run_anew(module, x)
    compiled(x)
    for _ in range(3):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = compiled(x)
        torch.cuda.current_stream().wait_stream(stream)
        assert torch.equal(y, expected)
    assert len(splits) == 1


def test_training_keeps_nothing(splits):
    module, x = make_module()
    torch.compile(module)(x).sum().backward()
    assert not splits


@torch.no_grad()
def test_the_switch_under_max_autotune(splits):
    model = torch.nn.Linear(WIDTH, WIDTH).cuda()
    x = torch.randn(ROWS, WIDTH, device="cuda")
    compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
    with fp32_matmul("ieee"):
        for _ in range(3):
            assert torch.equal(compiled(x), model(x))
    assert len(splits) == 1


@torch.no_grad()
def test_it_is_faster():
    """What it is for: the split takes as long as to read and write a weight of 1 GB. Tests beside
    this one take their time of the GPU, so that the least of times in turns counts."""
    module = nn.Linear(16384, 16384, bias=False, precision="ieee").cuda()
    x = torch.randn(128, 16384, device="cuda")
    compiled = torch.compile(module)

    def time():
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        compiled(x)
        events[1].record()
        torch.cuda.synchronize()
        return events[0].elapsed_time(events[1])

    kept, anew = [], []
    for _ in range(20):
        kept.append(time())
        with weight_splits.split_in_every_call():
            anew.append(time())
    assert min(anew) > 1.5 * min(kept)
