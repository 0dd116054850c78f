"""The product that derivatives are made of: with slices on either side, and with nothing in it."""

import pytest
import torch

from cutlass_fused.functional import _product

vmap = torch.func.vmap


def multiply(a, b):
    return _product.multiply(a, b, "ieee")


def map_twice(first, second):
    return lambda a, b: vmap(vmap(multiply, second), first)(a, b)


# The product of slices, and how many dimensions of slices both operands have.
CALLS = {
    "a": (vmap(multiply, (0, None)), 1, 0),
    "b": (vmap(multiply, (None, 0)), 0, 1),
    "both": (vmap(multiply), 1, 1),
    "both twice": (map_twice((0, 0), (0, 0)), 2, 2),
    "both, then a": (map_twice((0, None), (0, 0)), 2, 1),
    "both, then b": (map_twice((None, 0), (0, 0)), 1, 2),
    "a, then both": (map_twice((0, 0), (0, None)), 2, 1),
    "b, then both": (map_twice((0, 0), (None, 0)), 1, 2),
    "a twice": (map_twice((0, None), (0, None)), 2, 0),
    "b twice": (map_twice((None, 0), (None, 0)), 0, 2),
    "the second dimensions": (map_twice((1, 1), (0, 0)), 2, 2),
}


@pytest.mark.parametrize("size", [(3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_slices(call, size, monkeypatch):
    run, of_a, of_b = CALLS[call]
    m, n, k = size
    options = {"dtype": torch.float64, "requires_grad": True}
    a = torch.randn(*[2] * of_a, m, k, **options)
    b = torch.randn(*[2] * of_b, k, n, **options)
    results = []
    for has_kernel in (True, False):
        monkeypatch.setattr(_product, "_has_kernel", lambda a, value=has_kernel: value)
        y = run(a, b)
        results.append((y, *torch.autograd.grad(y.sin().sum(), (a, b))))
    torch.testing.assert_close(*results)
