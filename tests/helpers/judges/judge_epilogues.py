"""Functions behind products, with their gradients: beside PyTorch's own ops, by float64."""

import torch
from accuracy import matmul_settings

# Of the inputs, and of the product.
PRECISIONS = {
    "ieee": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# Nearer to the largest number of a dtype a rounding more or less in a tail decides between a number
# and infinity: a constant such as 1e-6, which eager PyTorch rounds to fp16 first, moves results by
# a hundredth.
NEAR_OVERFLOW = 0.95


def run_both_ways(tensors, run):
    """The results of run(*tensors), and the gradients of the tensors for gradients from -1 to 1."""
    results = run(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    found = torch.autograd.grad(results, tensors, make_grads(results), allow_unused=True)
    return [each.detach() for each in results], found


def make_grads(results):
    return [
        torch.linspace(-1, 1, each.shape[1], device=each.device).to(each).expand_as(each)
        for each in results
    ]


def find_magnitudes(tensors, run):
    """What cancels in the gradients of operands, where these are sums: the sums of the magnitudes
    of their terms. None for all others. And of those that are one number the norm of the terms."""
    x, weight, *operands = (each.detach().double() for each in tensors)
    shape = x.shape[0], weight.shape[0]
    expanded = [operand.expand(shape).clone().requires_grad_() for operand in operands]
    if not expanded:
        return [None, None], {}
    results = run(x, weight, *expanded)
    results = results if isinstance(results, tuple) else (results,)
    terms = torch.autograd.grad(results, expanded, make_grads(results), allow_unused=True)
    summed = [
        None if each is None or operand.shape == shape else each.abs().sum_to_size(operand.shape)
        for each, operand in zip(terms, operands, strict=True)
    ]
    norms = {
        i: each.norm()
        for i, (each, operand) in enumerate(zip(terms, operands, strict=True), start=2)
        if each is not None and operand.numel() == 1
    }
    return [None, None, *summed], norms


def assert_as_good(ours, eager, truth, what, magnitude=None, norm=0.0):
    """No further from the truth than twice eager, and what rounding leaves. Of a sum that is one
    ulp of the result and, since it is added up in fp32, one of fp32 of all that is added. Where the
    sum is a single number it is luck how near eager's comes: a rounding of each term, of which
    `norm` is the norm, leaves an ulp of that, by a random walk."""
    if truth is None or ours is None:
        assert ours is None or not ours.any()
        return
    dtype = torch.finfo(ours.dtype)
    judged = truth.isfinite() & eager.isfinite() & (truth.abs() <= NEAR_OVERFLOW * dtype.max)
    error, of_eager = (((y.double() - truth)[judged]).norm() for y in (ours, eager))
    floor = dtype.eps * truth[judged].norm()
    if magnitude is not None:
        floor = floor + torch.finfo(torch.float32).eps * magnitude[judged].norm()
    floor = floor + dtype.eps * norm
    assert error <= 2 * of_eager + floor, (what, error.item(), of_eager.item(), floor.item())
    nan = eager.isnan()
    if ours.dtype == torch.float16:
        # Eager rounds the terms of a sum to fp16, where they overflow: not those that ours adds up.
        nan &= truth.isnan() | ours.isnan()
    assert torch.equal(ours.isnan(), nan), (what, "NaN")


def judge(ours, eager, tensors, precision, of_elements=None):
    """ours(*tensors) beside eager(*tensors). `of_elements`: the same as eager, also for operands of
    (M, N); None where there is no such."""
    found, grads = run_both_ways(tensors, ours)
    with matmul_settings("tf32" if precision == "tf32" else "ieee"):
        of_eager, eager_grads = run_both_ways(tensors, eager)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    truth, true_grads = run_both_ways(wide, eager)
    for parts in zip(found, of_eager, truth, strict=True):
        assert_as_good(*parts, "result")
    magnitudes, norms = [None] * len(tensors), {}
    if of_elements is not None:
        magnitudes, norms = find_magnitudes(wide, of_elements)
    for i, parts in enumerate(zip(grads, eager_grads, true_grads, strict=True)):
        assert_as_good(*parts, f"gradient {i}", magnitudes[i], norms.get(i, 0.0))
