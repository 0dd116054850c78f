"""nn.LinearActivation by each name, forward and backward, beside PyTorch's own ops."""

import pytest
import torch
from judge_epilogues import PRECISIONS, judge
from torch.nn import functional as F

from cutlass_fused import nn
from cutlass_fused.programs.common import FUNCTIONS

pytestmark = pytest.mark.gpu

NUMBERS = {
    "leaky_relu": {"negative_slope": 0.2},
    "clamp": {"min": -0.5, "max": 1.0},
    "softplus": {"beta": 2.0, "threshold": 10.0},
    "elu": {"alpha": 0.7},
}
# M, N, K: tiles that end with M and N; a step of training
SHAPES = ((133, 264, 96), (1024, 512, 256))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, precision, device):
    given, dtype = NUMBERS.get(name, {}), PRECISIONS[precision]

    def eager(x, weight, bias, *slope):
        z = F.linear(x, weight, bias)
        return FUNCTIONS[name](z, *slope, **given)

    def of_elements(x, weight, bias, *slope):
        z = x @ weight.t() + bias
        return torch.where(z > 0, z, z * slope[0]) if slope else FUNCTIONS[name](z, **given)

    for m, n, k in SHAPES:
        torch.manual_seed(8)
        word = precision if precision in ("ieee", "tf32") else None
        options = {"precision": word, "device": device, "dtype": dtype}
        module = nn.LinearActivation(k, n, name, **options, **given)

        def ours(x, *values, module=module):
            names = [key for key, _ in module.named_parameters()]
            return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x,))

        x = torch.randn(m, k, device=device).to(dtype).requires_grad_()
        judge(ours, eager, [x, *module.parameters()], precision, of_elements)
        if name == "prelu":  # a slope for each column
            module = nn.LinearActivation(k, n, name, **options, num_parameters=n)
            judge(ours, eager, [x, *module.parameters()], precision, of_elements)


def test_compiled_and_captured(device):
    """A step behind a first one, in a graph of torch.compile and in one of CUDA."""
    torch._dynamo.reset()
    model = torch.nn.Sequential(
        nn.LinearActivation(96, 264, "gelu"), nn.LinearActivation(264, 64, torch.nn.PReLU())
    ).to(device)
    compiled = torch.compile(model, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):  # the third is a replay
        x = torch.randn(133, 96, device=device)
        torch.compiler.cudagraph_mark_step_begin()
        grads = []
        for run in (model, compiled):
            y = run(x)
            grads.append([y.detach().clone(), *torch.autograd.grad(y.sum(), model.parameters())])
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_prepared(device):
    """By a split that the module keeps, and with the weight on the CPU."""
    import cutlass_fused

    x = torch.randn(1024, 1024, device=device)
    module = nn.LinearActivation(1024, 2048, "silu", precision="ieee", device=device)
    with torch.no_grad():
        expected = module(x)
        assert torch.equal(cutlass_fused.prepare(module)(x), expected)
        alone = cutlass_fused.prepare(module, keep_weights=False)(x)
        torch.testing.assert_close(alone, expected, rtol=1e-5, atol=1e-6)
        assert module.weight.is_cpu


def test_autocast(device):
    """The dtype of the plain model, of which softplus is in fp32."""
    x = torch.randn(133, 96, device=device)
    for name, activation in (("gelu", F.gelu), ("softplus", F.softplus), ("tanh", torch.tanh)):
        module = nn.LinearActivation(96, 264, name).to(device)
        with torch.autocast("cuda", torch.bfloat16):
            plain, y = activation(F.linear(x, module.weight, module.bias)), module(x)
        assert y.dtype == plain.dtype
        torch.testing.assert_close(y, plain, rtol=0.03, atol=0.03)
