"""torch.func and batches of gradients over modules with trained parameters: as the plain ones."""

import pytest
import torch
from pairs import PAIRS, K, M


def total(module, x):
    return module(x).square().sum()


def differentiate_each(module, x):
    """A gradient for each row, as per-sample gradients are taken."""
    return torch.func.vmap(torch.func.grad(lambda row: total(module, row[None])))(x)


def differentiate_parameters(module, x):
    buffers = dict(module.named_buffers())

    def run(parameters):
        return torch.func.functional_call(module, (parameters, buffers), (x,)).square().sum()

    return torch.func.grad(run)(dict(module.named_parameters()))


def differentiate_batch(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    weights = torch.rand(7, *y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad(y, x, weights, is_grads_batched=True)


TRANSFORMS = {
    "grad": lambda module, x: torch.func.grad(lambda x: total(module, x))(x),
    "grad and value": lambda module, x: torch.func.grad_and_value(lambda x: total(module, x))(x),
    "jacrev": lambda module, x: torch.func.jacrev(module)(x),
    "vjp": lambda module, x: torch.func.vjp(module, x)[1](module(x)),
    "vmap": lambda module, x: torch.func.vmap(module)(torch.stack([x, 2 * x])),
    "vmap of grad": differentiate_each,
    "parameters": differentiate_parameters,
    "is_grads_batched": differentiate_batch,
    "jacobian": lambda module, x: torch.autograd.functional.jacobian(module, x),
    "jacobian, vectorized": lambda module, x: torch.autograd.functional.jacobian(
        module, x, vectorize=True
    ),
}


def build(name):
    modules = []
    for make in PAIRS[name]:
        torch.manual_seed(0)
        modules.append(make().double())
    return modules


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_as_the_plain_module(name, transform):
    if "training" in name and transform == "vmap of grad":
        with pytest.raises(ValueError, match="Expected more than 1"):  # a batch of one
            TRANSFORMS[transform](build(name)[0], torch.randn(M, K, dtype=torch.float64))
        return
    ours, plain = build(name)
    x = torch.randn(M, K, dtype=torch.float64)
    run = TRANSFORMS[transform]
    torch.testing.assert_close(run(ours, x), run(plain, x))


@pytest.mark.parametrize("name", PAIRS)
def test_second_gradients_reach_parameters(name):
    """Those of torch.func, of tensors outside of it that ask for a gradient."""
    x, found = torch.randn(M, K, dtype=torch.float64), []
    for module in build(name):
        first = torch.func.grad(lambda x, module=module: total(module, x))(x)
        leaves = list(module.parameters())
        if not leaves:  # a softmax
            found.append((first,))
            continue
        grads = torch.autograd.grad(first.sin().sum(), leaves, allow_unused=True)
        found.append([torch.zeros(()) if grad is None else grad for grad in grads])
        if name.endswith("training"):
            found[-1].pop(1)  # that of the bias: 0, or as None
    torch.testing.assert_close(*found)
