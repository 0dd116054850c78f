"""The modules on the GPU: moves, dtypes, autocast, training, torch.compile, torch.export."""

import copy

import pytest
import torch
from accuracy import Judge, matmul_settings
from calls import LEAKY, Call
from plain import PlainLinearScaleLeakyReLU, run_plain
from torch._dynamo.testing import CompileCounterWithBackend

from cutlass_fused import functional, nn

pytestmark = pytest.mark.gpu

IN, OUT = 96, 136
BATCHES = (4, 33, 130)


def make_pair(device="cpu", **options):
    torch.manual_seed(0)
    plain = PlainLinearScaleLeakyReLU(IN, OUT, 2.0, 0.1)
    torch.manual_seed(0)
    module = nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, **options)
    return plain.to(device), module.to(device)


def judge_module(module, x, ours, dtype=None):
    """`ours` against the plain expression on the module's parameters, cast to `dtype`."""

    def cast(tensor):
        return tensor.detach().to(dtype or tensor.dtype)

    call = Call(
        LEAKY,
        cast(x),
        cast(module.gemm.weight),
        cast(module.gemm.bias),
        multiplier=module.multiplier,
        negative_slope=module.negative_slope,
    )
    Judge(call).check(ours.detach())


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_moves_and_dtypes(device, dtype, grad):
    plain, module = make_pair(precision="ieee")
    plain, module = plain.to(device, dtype), module.to(device, dtype)
    for leading in ((7,), (), (2, 3)):
        x = torch.randn(*leading, IN, device=device).to(dtype)
        with torch.set_grad_enabled(grad):
            ours = module(x)
        assert ours.dtype == plain(x).dtype and ours.device == plain(x).device
        assert ours.requires_grad == grad
        judge_module(module, x, ours)
    back = module.cpu()
    assert back(torch.randn(3, IN, dtype=dtype)).device.type == "cpu"


def test_half_and_cuda(device):
    _, module = make_pair()
    x = torch.randn(5, IN, device=device).half()
    judge_module(module.half().cuda(), x, module(x))


@pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast(device, dtype, cast):
    plain, module = make_pair(device)
    x = torch.randn(70, IN, device=device).to(dtype)
    plain, module = plain.to(dtype), module.to(dtype)
    with torch.autocast("cuda", dtype=cast):
        expected, ours = plain(x), module(x)
    assert ours.dtype == expected.dtype == cast
    judge_module(module, x, ours, cast)
    ours.float().sum().backward()
    assert module.gemm.weight.grad.dtype == dtype


@pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (OUT,)], ids=str)
def test_autocast_with_tensor_scale(device, cast, shape):
    """The scale stays float32, and the result has the dtype of the plain expression."""
    x, weight = torch.randn(70, IN, device=device), torch.randn(OUT, IN, device=device) / 10
    scale = torch.full(shape, 1.5, device=device)
    with torch.autocast("cuda", dtype=cast):
        expected = run_plain(x, weight, None, scale, 0.1)
        ours = functional.linear_scale_leaky_relu(x, weight, None, scale, 0.1)
    assert ours.dtype == expected.dtype
    call = Call(LEAKY, x.to(cast), weight.to(cast), scale=scale, negative_slope=0.1)
    Judge(call.change(out_dtype=expected.dtype)).check(ours)


@pytest.mark.parametrize("setting", ["ieee", "tf32"])
def test_precision_none_follows_pytorch(device, setting):
    """The bits are those of the word that the setting stands for, and not those of the other."""
    _, module = make_pair(device)
    x = torch.randn(70, IN, device=device)
    torch.ops.cutlass_fused.force_tile("split_rows")  # one kernel would serve both words
    results = {}
    for word in ("ieee", "tf32"):
        named = copy.deepcopy(module)
        named.precision = word
        results[word] = named(x)
    assert not torch.equal(results["ieee"], results["tf32"])
    torch.backends.cuda.matmul.fp32_precision = setting
    assert torch.equal(module(x), results[setting])


def test_training_follows_the_plain_model(device):
    x, target = torch.randn(64, IN, device=device), torch.randn(64, OUT, device=device)
    plain, module = make_pair(device, precision="ieee")
    losses = []
    for model in (plain, module):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        history = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        losses.append(torch.stack(history))
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("backend", "precision", "grad"),
    [
        ("aot_eager", "ieee", True),
        ("aot_eager", "tf32", True),
        ("aot_eager", None, False),
        ("inductor", None, True),
    ],
)
def test_compile(device, precision, backend, grad):
    """One graph for every batch, and the bits of the uncompiled module."""
    torch._dynamo.reset()
    _, module = make_pair(device, precision=precision)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(module, backend=counter, fullgraph=True)
    for batch in BATCHES:
        x = torch.randn(batch, IN, device=device, requires_grad=grad)
        torch._dynamo.mark_dynamic(x, 0)
        with torch.set_grad_enabled(grad):
            ours, expected = compiled(x), module(x)
        assert torch.equal(ours, expected)
        if grad:
            leaves = [x, *module.parameters()]
            ours = torch.autograd.grad(ours.square().sum(), leaves)
            expected = torch.autograd.grad(expected.square().sum(), leaves)
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1


def test_compile_with_cuda_graphs(device):
    """mode="reduce-overhead" replays the op inside graphs of PyTorch's making."""
    torch._dynamo.reset()
    _, module = make_pair(device, precision="ieee")
    compiled = torch.compile(lambda x: module(x) + 1.0, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(33, IN, device=device)
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(x), module(x) + 1.0)


def test_export_with_dynamic_batch(device):
    _, module = make_pair(device, precision="tf32")
    module = module.to(torch.bfloat16).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    x = torch.randn(4, IN, device=device).bfloat16()
    with torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
        for size in BATCHES:
            x = torch.randn(size, IN, device=device).bfloat16()
            assert torch.equal(program.module()(x), module(x))


def test_parameters_are_shared_with_the_plain_model(device):
    plain, _ = make_pair(device)
    module = nn.LinearScaleLeakyReLU.from_eager(plain.gemm, 2.0, plain.leaky_relu)
    x = torch.randn(9, IN, device=device)
    for _ in range(3):
        with torch.no_grad(), matmul_settings("ieee"):
            judge_module(module, x, module(x))
            plain.gemm.weight.mul_(-1.25)
            plain.gemm.bias.data.add_(0.5)
