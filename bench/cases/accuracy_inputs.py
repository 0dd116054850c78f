"""What the matrices of bench.accuracy hold.

Each function gives x (m, k) and weight (n, k) in float32, drawn by `generator`, which must be on
`device`. They are the operands of x @ weight.T, whatever product of a Linear that is: in its
gradients the columns of a batch are rows here, and the batch is k.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor]

# The columns of an ill-conditioned product reach from 2^-20 to 2^20.
LARGEST_EXPONENT = 20
# Rows and columns are scaled by powers of two from 1e-12 to 1e12.
LARGEST_SCALE_EXPONENT = 40
# What is left of two terms that cancel, as a part of one of them.
REMAINDER = 2.0**-10


def draw_rand(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Those of the models: x uniform in 0..1, weight as torch.nn.Linear draws it, uniform in
    -1/sqrt(k)..1/sqrt(k)."""
    draw = functools.partial(torch.rand, generator=generator, device=device)
    return draw(m, k), draw(n, k).mul_(2).sub_(1).mul_(k**-0.5)


def draw_randn(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Both normal: the usual measure of a product's error."""
    draw = functools.partial(torch.randn, generator=generator, device=device)
    return draw(m, k), draw(n, k)


def draw_log_normal(
    sigma: float, m: int, n: int, k: int, generator: torch.Generator, device: str
) -> Inputs:
    """Elements of one row that differ by orders of magnitude, with random signs.

    The logarithms have the standard deviation `sigma`: with 3 the elements of a long row span more
    than 30 binades, which no fp16 number does.
    """

    def draw(rows: int) -> Tensor:
        sizes = torch.empty(rows, k, device=device).log_normal_(0, sigma, generator=generator)
        signs = torch.randint(0, 2, (rows, k), generator=generator, device=device)
        return sizes.mul_(2 * signs - 1)

    return draw(m), draw(n)


def draw_ill_conditioned(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Normal numbers, column j of x times a power of two, column j of weight divided by the same.

    The exact result is that of the unscaled matrices, and all its terms are of one size, so that
    none may be lost; but the elements of a row span 40 binades, in opposite directions in x and
    weight.
    """
    x, weight = draw_randn(m, n, k, generator, device)
    # On the CPU, in float64, where powers of two are exact.
    exponents = torch.linspace(-LARGEST_EXPONENT, LARGEST_EXPONENT, k).round().double()
    scale = exponents.exp2().float().to(device)
    return x.mul_(scale), weight.div_(scale)


def draw_cancelling(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Two halves of which almost nothing is left: x = [a, r - a] and weight = [v, v], with r 1024
    times smaller than a.

    The result is r @ v.T, up to the rounding of r - a: an error that is small beside the terms is
    large beside their sum. Of an odd k the last column of x is as small as r.
    """
    half = k // 2
    draw = functools.partial(torch.randn, generator=generator, device=device)
    a, rest = draw(m, half), draw(m, k - half).mul_(REMAINDER)
    v, last = draw(n, half), draw(n, k - 2 * half)
    x = torch.cat([a, rest[:, :half] - a, rest[:, half:]], dim=1)
    return x, torch.cat([v, v, last], dim=1)


def draw_powers(count: int, generator: torch.Generator, device: str) -> Tensor:
    """Powers of two from 1e-12 to 1e12, in no order. They leave the digits of a number alone."""
    most = LARGEST_SCALE_EXPONENT
    exponents = torch.randint(-most, most + 1, (count,), generator=generator, device=device)
    # On the CPU, in float64, where powers of two are exact.
    return exponents.cpu().double().exp2().float().to(device)


def draw_scaled_outputs(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Normal numbers, each row of x and of weight times a power of its own: rows and columns of the
    result from 1e-12 to 1e12, which may cost each other no digit."""
    x, weight = draw_randn(m, n, k, generator, device)
    x.mul_(draw_powers(m, generator, device)[:, None])
    return x, weight.mul_(draw_powers(n, generator, device)[:, None])


def draw_scaled_terms(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """Normal numbers, each column of x and of weight times a power of its own: sums from 1e-24 to
    1e24, of which few terms are left."""
    x, weight = draw_randn(m, n, k, generator, device)
    x.mul_(draw_powers(k, generator, device))
    return x, weight.mul_(draw_powers(k, generator, device))


def draw_scaled_both(m: int, n: int, k: int, generator: torch.Generator, device: str) -> Inputs:
    """scaled_outputs with the columns scaled too, those of weight by the inverse: all terms of a
    sum are of one size, so that none may be lost."""
    x, weight = draw_scaled_outputs(m, n, k, generator, device)
    powers = draw_powers(k, generator, device)
    return x.mul_(powers), weight.div_(powers)


INPUTS: dict[str, Callable[[int, int, int, torch.Generator, str], Inputs]] = {
    "rand": draw_rand,
    "randn": draw_randn,
    "lognormal_0.5": functools.partial(draw_log_normal, 0.5),
    "lognormal_1": functools.partial(draw_log_normal, 1.0),
    "lognormal_3": functools.partial(draw_log_normal, 3.0),
    "ill_conditioned": draw_ill_conditioned,
    "cancelling": draw_cancelling,
    "scaled_outputs": draw_scaled_outputs,
    "scaled_terms": draw_scaled_terms,
    "scaled_both": draw_scaled_both,
}
