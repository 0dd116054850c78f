"""No memory in the middle of a call: it raises, modules, running statistics and gradients stay as
they were, and the next call is right."""

import gc

import pytest
import torch

from cutlass_fused import epilogue, nn

pytestmark = pytest.mark.gpu

M, N, K = 4096, 2048, 1024
MIB = 2**20
# What a call may have, in steps, from nothing to more than any of these needs.
ALLOWANCES = (0, 4, 12, 24, 40, 64, 96, 160)
MODULES = {
    "linear": lambda p: nn.Linear(K, N, precision=p),
    "scale leaky relu": lambda p: nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1, precision=p),
    "scale batch norm": lambda p: nn.LinearScaleBatchNorm1d(K, N, (N,), precision=p),
    "batch norm softmax": lambda p: nn.LinearBatchNorm1dScaleSoftmax(K, N, precision=p),
}


@epilogue
def gated(acc, bias, gate):
    return torch.nn.functional.gelu(acc + bias) * gate


class Memory:
    """PyTorch's allocator with so many bytes left, of which it keeps none for later."""

    def __init__(self, allowance):
        self.allowance = allowance

    def __enter__(self):
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        most = torch.cuda.memory_reserved() + self.allowance * MIB
        torch.cuda.set_per_process_memory_fraction(most / total)

    def __exit__(self, *_):
        torch.cuda.set_per_process_memory_fraction(1.0)


def check_kind(error):
    """torch.OutOfMemoryError; within an op of ours the stable ABI makes a RuntimeError of it."""
    assert isinstance(error, torch.OutOfMemoryError) or "API call failed" in str(error), error


def copy_state(module):
    found = {name: each.clone() for name, each in module.state_dict().items()}
    grads = ((name, p.grad) for name, p in module.named_parameters())
    return found | {f"grad of {n}": None if g is None else g.clone() for n, g in grads}


def assert_same(state, other, step):
    assert state.keys() == other.keys()
    for name, each in state.items():
        one = other[name]
        same = one is None if each is None else one is not None and torch.equal(each, one)
        assert same, f"{name} has changed behind {step}"


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("name", MODULES)
def test_forward_in_training(device, name, precision):
    """Statistics move by a call that ends well, and by no other."""
    torch.manual_seed(0)
    module = MODULES[name](precision).to(device).train()
    x = torch.randn(M, K, device=device)
    before, failures = copy_state(module), 0
    for allowance in ALLOWANCES:
        state = copy_state(module)
        with Memory(allowance):
            try:
                y = module(x)
            except RuntimeError as error:
                check_kind(error)
                y, failures = None, failures + 1
        if y is None:
            assert_same(state, copy_state(module), f"{allowance} MiB")
        del y
    assert failures > 0
    module.load_state_dict({n: each for n, each in before.items() if not n.startswith("grad of ")})
    again = MODULES[name](precision).to(device).train()
    again.load_state_dict(module.state_dict())
    assert torch.equal(module(x), again(x))
    assert_same(copy_state(module), copy_state(again), "the next call")


@pytest.mark.parametrize("name", MODULES)
def test_backward(device, name):
    """A gradient that was accumulated before is whole, or that of the step behind it."""
    torch.manual_seed(0)
    module = MODULES[name]("ieee").to(device).train()
    x, failures = torch.randn(M, K, device=device), 0
    module(x).square().sum().backward()
    for allowance in ALLOWANCES:
        loss = module(x).square().sum()
        state = copy_state(module)
        with Memory(allowance):
            try:
                loss.backward()
            except RuntimeError as error:
                check_kind(error)
                failures += 1
        del loss
        # PyTorch accumulates leaf by leaf: each one is as it was, or holds all of its new part.
        for key, each in copy_state(module).items():
            if key.startswith("grad of ") and not torch.equal(each, state[key]):
                assert torch.isfinite(each).all(), key
    assert failures > 0
    module.zero_grad()
    again = MODULES[name]("ieee").to(device).train()
    again.load_state_dict(module.state_dict())
    for each in (module, again):
        each(x).square().sum().backward()
    assert_same(copy_state(module), copy_state(again), "the next step")


def test_epilogue(device):
    torch.manual_seed(0)
    x, weight = torch.randn(M, K, device=device), torch.randn(N, K, device=device)
    bias, gate = torch.randn(N, device=device), torch.randn(M, N, device=device)
    expected = gated(x, weight, bias=bias, gate=gate)
    failures = 0
    for allowance in ALLOWANCES:
        with Memory(allowance):
            try:
                y = gated(x, weight, bias=bias, gate=gate)
            except RuntimeError as error:
                check_kind(error)
                y, failures = None, failures + 1
        assert y is None or torch.equal(y, expected)
        del y
    assert failures > 0
    assert torch.equal(gated(x, weight, bias=bias, gate=gate), expected)


def test_parts_of_a_weight_are_not_kept_half(device):
    """A split that finds no memory leaves nothing behind that a later call would read."""
    torch.manual_seed(0)
    module = nn.Linear(K, N, device=device)
    x = torch.randn(M, K, device=device)
    for allowance in ALLOWANCES[:5]:
        with torch.no_grad():
            module.weight.mul_(-1.5)  # another version, of which nothing is kept
            with Memory(allowance):
                try:
                    module(x)
                except RuntimeError as error:
                    check_kind(error)
            exact = x.double() @ module.weight.double().t() + module.bias.double()
            torch.testing.assert_close(module(x).double(), exact, rtol=1e-5, atol=1e-3)
