"""torch.compile of the modules with a batch norm on the GPU: one graph, the bits of the uncompiled
module, and running statistics that each call updates once."""

import copy

import pytest
import torch
from compile_once import compile_once

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

IN, OUT = 96, 136
BATCHES = (4, 33, 130)


class Net(torch.nn.Module):
    """All four kernels' modules, with code around them that inductor fuses."""

    def __init__(self, momentum=0.1):
        super().__init__()
        self.first = nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), momentum=momentum, precision="ieee")
        self.norm = nn.BatchNorm1d(OUT, momentum=momentum)
        self.second = nn.LinearBatchNorm1dScaleSoftmax(
            OUT, IN, bn_momentum=momentum, precision="tf32"
        )
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        y = self.norm(torch.relu(self.first(x * 2.0)))
        return self.second(y) + self.softmax(x)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run(function, x, parameters, grad):
    """y and, if `grad`, the gradients of x and of the parameters."""
    with torch.set_grad_enabled(grad):
        y = function(x)
        if not grad:
            return [y]
        return [y, *torch.autograd.grad(y.square().sum(), [x, *parameters])]


@pytest.mark.parametrize(
    ("backend", "training", "grad", "momentum"),
    [
        ("aot_eager", True, True, 0.1),
        ("aot_eager", True, False, None),
        ("aot_eager", False, True, 0.1),
        ("aot_eager", False, False, 0.1),
        ("inductor", True, True, None),
    ],
)
def test_compile(device, backend, training, grad, momentum):
    torch.manual_seed(0)
    module = Net(momentum).to(device).train(training)
    twin = copy.deepcopy(module)
    compiled, counter = compile_once(module, backend)
    for calls, batch in enumerate(BATCHES, 1):
        x = torch.randn(batch, IN, device=device, requires_grad=grad)
        ours = run(compiled, x, module.parameters(), grad)
        expected = run(twin, x, twin.parameters(), grad)
        if backend == "inductor":
            torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)
        else:
            assert torch.equal(ours[0], expected[0])
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
        for name, value in twin.state_dict().items():
            torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-4, atol=1e-5)
            if name.endswith("num_batches_tracked"):
                assert int(module.state_dict()[name]) == calls * training, name
    assert counter.frame_count == 1


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_export_with_dynamic_batch(device, training):
    torch.manual_seed(0)
    module = Net().to(device).train(training)
    twin = copy.deepcopy(module)  # the program updates the module's own buffers
    batch = torch.export.Dim("batch", min=2, max=4096)
    x = torch.randn(4, IN, device=device)
    with torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},)).module()
        for size in BATCHES:
            x = torch.randn(size, IN, device=device)
            torch.testing.assert_close(program(x), twin(x), rtol=1e-5, atol=1e-6)
    state = program.state_dict()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6, msg=name)
