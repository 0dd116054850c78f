"""What the words of programs compute, as PyTorch has them; inputs on which that is compared; and
the comparison."""

import itertools
import math

import torch
from torch.nn import functional

_OTHERS = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "mish": functional.mish,
    "log_sigmoid": functional.logsigmoid,
    "prelu": torch.ops.aten._prelu_kernel,
    "leaky_relu": functional.leaky_relu,
    "elu": torch.ops.aten.elu,
    "softplus": functional.softplus,
    "hardtanh": functional.hardtanh,
    "threshold": functional.threshold,
    "not": torch.logical_not,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
}

# Numbers in place of arguments, by their places: all that take a number, and what PyTorch treats
# apart. Products of these with an argument of a function are exact, or the errors of the argument
# would be those of the function.
NUMBERS = {
    "leaky_relu": [{1: 0.01}, {1: -0.5}, {1: 0.0}, {1: math.inf}],
    "elu": [{1: 1.0, 2: 1.0, 3: 1.0}, {1: 1.6732632, 2: 1.0507, 3: 1.0}, {1: 0.75, 2: 1.5, 3: 2.0}],
    "softplus": [{1: 1.0, 2: 20.0}, {1: 0.5, 2: 1.0}, {1: 2.0, 2: -3.0}],
    "hardtanh": [{1: -1.0, 2: 1.0}, {1: 0.0, 2: 6.0}],
    "threshold": [{1: 0.5, 2: -7.0}, {1: 0.0, 2: math.nan}, {1: -math.inf, 2: 0.0}],
    "clamp": [{}, {1: -0.5, 2: 2.0}, {1: -1.0}, {2: math.nan}, {1: 2.0, 2: 1.0}],
    "pow": [
        {},
        *({1: e} for e in (2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 0.0, -0.0, 1.0, 4.0, 2.5, -3.0)),
        *({1: e} for e in (math.inf, math.nan, 0.1, 2.0 + 2.0**-40, 0.5 + 2.0**-40)),
        {0: 2.0},
    ],
    "div": [{}, {1: 3.0}, {1: 0.0}, {1: -math.inf}, {0: 1.0}],
    "add": [{}, {1: 0.1}, {1: math.nan}, {0: -math.inf}, {1: 1e300}],
    "mul": [{}, {1: -0.0}, {1: 1e-300}],
    "maximum": [{}, {1: 0.25}, {0: math.nan}],
    "where": [{}, {1: 1.0, 2: -2.0}],
    "lt": [{}, {1: 1.0}],
}

# 0.5, 1.5 and 2.5 for round; 2.9999998 and 3 for hardswish; 88.8 is above the logarithm of the
# largest float, 104 below that of the smallest; 1e20 and 1e30 overflow in a cube and in a square.
_MAGNITUDES = (
    *(0.0, 2.0**-149, 2.0**-140, 2.0**-126, 1e-30, 1e-10, 1e-3, 0.25, 0.3, 0.5, 0.75, 0.999, 1.0),
    *(1.001, 1.5, 2.0, 2.5, 2.9999998, 3.0, 3.5, 5.0, 10.0, 19.5, 20.5, 50.0, 88.8, 104.0, 1000.5),
    *(2.0**23, 8388609.5, 1e20, 1e30, 3.4028234e38, math.inf),
)
_SPECIAL = torch.tensor([*(s * m for m in _MAGNITUDES for s in (1.0, -1.0)), math.nan])
_FEW = torch.tensor(
    [0.0, -0.0, 1e-40, 0.5, -1.0, 1.5, -2.0, 3.5, 1e30, math.inf, -math.inf, math.nan]
)


def make_inputs(count):
    """Special values, each with each, and random ones."""
    generator = torch.Generator().manual_seed(count)
    shape = (count, 1500)
    scale = torch.exp2(torch.randint(-12, 8, shape, generator=generator))
    random = torch.randn(shape, generator=generator) * scale
    special = itertools.product((_SPECIAL if count < 3 else _FEW).tolist(), repeat=count)
    return torch.cat([torch.tensor(list(special)).T, random], 1)


def _round(number):
    return torch.tensor(number, dtype=torch.float64).float().item()


def run_word(word, signature, numbers, inputs):
    """In the dtype of the inputs. Numbers are rounded to floats, but for exponents of PyTorch in
    fp32, which knows some of them by their exact value."""
    function = _OTHERS.get(word) or getattr(torch, word, None)
    rounded = {place: _round(number) for place, number in numbers.items()}
    left = iter(inputs)
    arguments = []
    for place, kind in enumerate(signature.partition(">")[0]):
        if place in numbers:
            is_exponent = word == "pow" and place == 1
            in_full = is_exponent and inputs.dtype == torch.float32
            number = numbers[place] if in_full else rounded[place]
            takes_number = kind == "n" or is_exponent
            arguments.append(number if takes_number else torch.full_like(inputs[0], number))
        else:
            each = next(left)
            arguments.append(each != 0 if kind == "b" else each)
    result = arguments[0] if word == "float" else function(*arguments)
    return result.to(inputs.dtype)


# Where PyTorch's kernels differ. The sign of a zero of the first is that of a GPU: on the CPU it is
# that of any argument, by the place in a vector (of clamp, where its bounds are tensors). That of
# relu and hardtanh is the CPU's, and not that of GPUs up to PyTorch 2.11.
# The CPU's vectors err in the others: sinh and cosh overflow from 88.7 on, gelu is NaN of infinity,
# fmod and remainder are NaN where the quotient overflows. These are judged by float64 alone.
SIGNS_OF_ZEROS_DIFFER = ("maximum", "minimum", "clamp")
CPU_ERRS = ("sinh", "cosh", "gelu", "fmod", "remainder")

# These multiply x by 1 + erf or 1 + tanh, which is as exact as numbers about 1 are: far below 0 the
# result is what is left of 1. PyTorch's kernels do the same.
CANCELLING = ("gelu", "gelu_tanh")
ULPS = 4


def find_faults(word, ours, eager, truth, inputs, relative=0.0, least=0.0):
    """What is wrong with the results of a word, by words; none: []. `eager`: PyTorch's in fp32 on
    the CPU, `truth`: in float64. Errors of so large a part of the truth are none, nor smaller ones
    than `least`."""
    faults = []
    if word in CPU_ERRS:
        eager = truth.float()
    if not torch.equal(ours.isnan(), eager.isnan()):
        faults.append("NaN")
    infinite = (ours.isinf() | eager.isinf()) & ~ours.isnan() & ~eager.isnan()
    if not torch.equal(ours[infinite], eager[infinite]):
        faults.append("infinity")
    zero = (ours == 0) & (eager == 0)
    same = torch.signbit(ours) == torch.signbit(eager)
    if word not in SIGNS_OF_ZEROS_DIFFER and not same[zero].all():
        faults.append("sign of zero")
    finite = ours.isfinite() & eager.isfinite()
    error, eager_error = (ours - truth).abs(), (eager - truth).abs()
    size = truth.abs()
    if word in CANCELLING:
        size = torch.maximum(size, inputs[0].double().abs())
    exponent = torch.frexp(size.clamp(2.0**-126, 2.0**127)).exponent - 24
    allowed = ULPS * torch.ldexp(torch.ones_like(size), exponent) + 2 * eager_error
    allowed += relative * truth.abs() + least
    if not (error <= allowed)[finite].all():
        worst = torch.where(finite, error - allowed, -math.inf).argmax()
        values = [x[worst].item() for x in inputs]
        faults.append(f"of {values}: {ours[worst]} beside {truth[worst]}")
    return faults
