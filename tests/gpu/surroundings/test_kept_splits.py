"""The splits of weights that are kept: when one is made, who reads it, and what is left of it."""

import copy

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.weights import splits as weight_splits

pytestmark = pytest.mark.gpu

IN, OUT = 232, 136  # K is no multiple of what is split together
PRECISIONS = ("ieee", "tf32")
MODULES = {
    "Linear": lambda **options: nn.Linear(IN, OUT, **options),
    "LinearScaleLeakyReLU": lambda **options: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, **options),
    "LinearScaleBatchNorm1d": lambda **options: nn.LinearScaleBatchNorm1d(
        IN, OUT, (OUT,), **options
    ),
    "LinearBatchNorm1dScaleSoftmax": lambda **options: nn.LinearBatchNorm1dScaleSoftmax(
        IN, OUT, **options
    ),
}
each_module = pytest.mark.parametrize("name", MODULES)
each_precision = pytest.mark.parametrize("precision", PRECISIONS)


@pytest.fixture(autouse=True)
def split_rows(free_the_tile):
    """Small products too, which would be multiplied as they lie."""
    torch.ops.cutlass_fused.force_tile("split_rows")


@pytest.fixture(autouse=True)
def empty_cache():
    cutlass_fused.invalidate()
    yield
    cutlass_fused.invalidate()


@pytest.fixture
def splits(monkeypatch):
    """What was split, in order."""
    made, split = [], weight_splits._cache._split

    def count(weight, precision):
        made.append(weight)
        return split(weight, precision)

    monkeypatch.setattr(weight_splits._cache, "_split", count)
    return made


def make_module(device, name="Linear", precision="ieee"):
    torch.manual_seed(0)
    module = MODULES[name](precision=precision).to(device).eval()
    return module, torch.randn(70, IN, device=device)


def get_gemm(module):
    return getattr(module, "gemm", module)


def run_anew(module, x):
    """The result with a split that is made for it."""
    with weight_splits.split_in_every_call():
        return module(x)


# ---- from call to call ----


@each_precision
@each_module
@torch.no_grad()
def test_one_split_serves_every_call(device, splits, name, precision):
    module, x = make_module(device, name, precision)
    results = [module(x) for _ in range(3)]
    assert len(splits) == 1
    for result in results:
        assert torch.equal(result, run_anew(module, x))
    assert len(splits) == 1


def load(weight):
    linear = torch.nn.Linear(IN, OUT, bias=False, device=weight.device)
    holder = torch.nn.Linear(IN, OUT, bias=False, device="meta")
    holder.weight = weight
    holder.load_state_dict(linear.state_dict())


def step(weight):
    weight.grad = torch.randn_like(weight)
    torch.optim.SGD([weight], lr=1.0).step()


def step_uncounted(weight):
    weight.grad = torch.randn_like(weight)
    torch.optim.AdamW([weight], lr=1.0, fused=True).step()


def write_behind_its_back(weight):
    weight.data.mul_(-2)
    cutlass_fused.invalidate(weight)


CHANGES = {
    "mul_": lambda weight: weight.mul_(2),
    "load": load,
    "step": step,
    "step of a fused optimizer": step_uncounted,
    "data and invalidate": write_behind_its_back,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_a_changed_weight_is_never_missed(device, splits, change):
    module, x = make_module(device)
    before = module(x)
    change(module.weight)
    after = module(x)
    assert not torch.equal(before, after)
    assert torch.equal(after, run_anew(module, x))
    assert len(splits) == 2


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@pytest.mark.parametrize("fused", [False, True], ids=["counted", "fused"])
def test_training_and_evaluation_in_turn(device, splits, fused, prepared):
    """Nothing is kept of a weight that is trained; what was kept in between is forgotten."""
    module, x = make_module(device, "LinearScaleLeakyReLU")
    if prepared:
        cutlass_fused.prepare(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        result = module(x)
        with torch.no_grad():
            assert torch.equal(result, run_anew(module, x))
            assert torch.equal(result, module(x))
        module(x).square().mean().backward()
        assert len(weight_splits._cache) == 0
        optimizer.step()
    assert len(splits) == (2 if prepared else 3)


@torch.no_grad()
def test_another_stream_waits_for_the_split(device):
    """The weight comes late on the stream that splits it."""
    module, x = make_module(device)
    late = copy.deepcopy(module)
    late.weight.fill_(torch.nan)
    torch.cuda.synchronize()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(50_000_000)
        late.weight.copy_(module.weight)
        late(x)
    with torch.cuda.stream(second):
        result = late(x)
    torch.cuda.synchronize()
    assert torch.equal(result, module(x))


@torch.no_grad()
def test_another_stream_waits_for_what_is_prepared(device):
    module, x = make_module(device)
    expected = run_anew(module, x)
    torch.cuda.synchronize()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(50_000_000)
        cutlass_fused.prepare(module)
    with torch.cuda.stream(second):
        result = module(x)
    torch.cuda.synchronize()
    assert torch.equal(result, expected)


@torch.no_grad()
def test_no_tracer_gets_what_is_kept(device, splits):
    """The older exports would bake it in; fake tensors must not stay."""
    module, x = make_module(device)
    expected = module(x)
    traced = torch.jit.trace(module, (x,), check_trace=False)
    recorded = make_fx(module)(x)
    module.weight.mul_(-2)
    assert torch.equal(traced(x), module(x)) and not torch.equal(module(x), expected)
    assert torch.equal(recorded(x), module(x))
    cutlass_fused.invalidate()
    with FakeTensorMode(allow_non_fake_inputs=True):
        module(x)
    assert len(weight_splits._cache) == 0
    assert type(module(x)) is torch.Tensor


@torch.no_grad()
def test_nothing_synchronises(device):
    module, x = make_module(device)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module(x)
        module(x)
        cutlass_fused.prepare(module)
        module(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@torch.no_grad()
def test_memory_of_what_is_kept_and_given_back(device):
    module, x = make_module(device)
    module(x)
    torch.cuda.synchronize()
    kept = torch.cuda.memory_allocated(device)
    cutlass_fused.invalidate(module)
    freed = kept - torch.cuda.memory_allocated(device)
    assert 4 * OUT * IN <= freed <= 1.5 * 4 * OUT * IN
    module(x)
    assert torch.cuda.memory_allocated(device) == kept
    cutlass_fused.keep_splits(False)
    try:
        assert torch.cuda.memory_allocated(device) == kept - freed
        module(x)
        assert torch.cuda.memory_allocated(device) == kept - freed
    finally:
        cutlass_fused.keep_splits(True)


# ---- in graphs ----


def capture(module, x):
    module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(x)
    return graph, result


@torch.no_grad()
def test_a_captured_graph_splits_the_weight_that_is_there(device):
    module, x = make_module(device)
    graph, result = capture(module, x)
    module.weight.mul_(-3)
    graph.replay()
    assert torch.equal(result, module(x))


@torch.no_grad()
def test_a_captured_graph_reads_what_was_prepared(device, splits):
    module, x = make_module(device)
    expected = module(x)
    graph, result = capture(cutlass_fused.prepare(module), x)
    module.weight.mul_(-3)
    graph.replay()
    assert torch.equal(result, expected)
    assert torch.equal(module(x), run_anew(module, x)), "outside of the graph the change is seen"
    assert not torch.equal(module(x), expected)


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "prepared"])
@each_module
@torch.no_grad()
def test_compiled_modules_have_the_same_bits(device, name, prepared):
    torch._dynamo.reset()
    module, x = make_module(device, name)
    if prepared:
        cutlass_fused.prepare(module)
    compiled = torch.compile(module, fullgraph=True)
    assert torch.equal(compiled(x), run_anew(module, x))
    if not prepared:
        get_gemm(module).weight.mul_(-2)
        assert torch.equal(compiled(x), run_anew(module, x))


# ---- the split alone ----


def prepare_alone(module):
    return cutlass_fused.prepare(module, keep_weights=False)


@each_precision
@each_module
@torch.no_grad()
def test_the_split_alone_gives_the_same_bits(device, name, precision):
    module, x = make_module(device, name, precision)
    expected = run_anew(module, x)
    assert prepare_alone(module) is module
    assert get_gemm(module).weight.device.type == "cpu"
    assert torch.equal(module(x), expected)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(module, fullgraph=True)(x), expected)
    assert torch.equal(torch.export.export(module, (x,)).module()(x), expected)
    graph, result = capture(module, x)
    result.fill_(torch.nan)
    graph.replay()
    assert torch.equal(result, expected)


@each_precision
@torch.no_grad()
def test_the_split_alone_takes_the_weights_memory(device, precision):
    module, x = make_module(device, precision=precision)
    run_anew(module, x)
    before = torch.cuda.memory_allocated(device)
    prepare_alone(module)
    taken = torch.cuda.memory_allocated(device) - before
    share = 1.0 if precision == "ieee" else 0.5
    assert taken < (share - 1) * 4 * OUT * IN + 0.2 * 4 * OUT * IN
    module(x)
    assert torch.cuda.memory_allocated(device) - before == taken


@each_precision
@torch.no_grad()
def test_rows_of_x_out_of_reach_read_the_split(device, precision):
    module, x = make_module(device, precision=precision)
    x[3, 5] = 1e30
    module.weight[:, 5] = 0
    x[9, 2], x[20, 3] = torch.inf, torch.nan
    expected = run_anew(module, x)
    ours = prepare_alone(module)(x)
    others = [row for row in range(len(x)) if row != 3]
    torch.testing.assert_close(ours[others], expected[others], rtol=0, atol=0, equal_nan=True)
    digits = 2.0**-21 if precision == "ieee" else 2.0**-10
    size = (x[3].abs() @ module.weight.abs().t().to(device)).max()
    torch.testing.assert_close(ours[3], expected[3], rtol=0, atol=float(digits * size))


def test_the_split_alone_serves_no_gradients(device):
    module, x = make_module(device)
    state = copy.deepcopy(module.state_dict())
    prepare_alone(module)
    with pytest.raises(RuntimeError, match="left on the CPU must be called without gradients"):
        module(x)
    with torch.no_grad(), torch.autocast("cuda"), pytest.raises(RuntimeError, match="autocast"):
        module(x)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor.cpu(), state[name].cpu())
    module.cuda()
    module(x).sum().backward()
    assert module.weight.grad is not None


@torch.no_grad()
def test_a_weight_that_changes_on_the_cpu_is_not_served(device):
    module, x = make_module(device)
    prepare_alone(module)
    module.weight.mul_(2)
    with pytest.raises(RuntimeError, match="with the weights that it had"):
        module(x)
    expected = run_anew(module.cuda(), x)
    assert torch.equal(prepare_alone(module)(x), expected)


@torch.no_grad()
def test_a_weight_with_a_row_out_of_reach_stays(device):
    module, x = make_module(device)
    module.weight[7, 3] = 1e-30
    expected = module(x)
    prepare_alone(module)
    assert module.weight.is_cuda
    assert torch.equal(module(x), expected)


@pytest.mark.parametrize("keep_weights", [True, False])
@torch.no_grad()
def test_two_modules_that_share_a_weight(device, splits, keep_weights):
    (module, x), (other, _) = make_module(device), make_module(device, "LinearScaleLeakyReLU")
    other.gemm.weight = module.weight
    expected = [run_anew(each, x) for each in (module, other)]
    cutlass_fused.prepare(torch.nn.ModuleList([module, other]), keep_weights=keep_weights)
    assert module.weight.is_cuda == keep_weights
    for each, result in zip((module, other), expected, strict=True):
        assert torch.equal(each(x), result)
    assert splits == []
