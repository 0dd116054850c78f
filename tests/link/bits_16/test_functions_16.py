"""The functions of programs whose results are rounded to 16 bits (program/prelude_16.hpp), compiled
for the host: every word, over all that fp32 has, with instructions whose errors are as large as
they may be. A rounding to fp16 takes up to 2^-11 of a number, to bf16 2^-8."""

import pytest
import torch
from printed_programs import compile_printed, make_printer, write_text
from program_words import read_words
from word_functions import NUMBERS, find_faults, make_inputs, run_word

WORDS = read_words()
CASES = [(word, numbers) for word in WORDS for numbers in NUMBERS.get(word, [{}])]
CASES += [("pow", {1: exponent}) for exponent in (63.5, 64.5, -0.75, 1.0 / 3)]
RELATIVE, LEAST = 2.0**-14, 2.0**-120
# What tests/host/programs/instructions.hpp does.
ERRORS = {"none": 0, "up": 1, "down": -1, "mixed": 2}
# These are computed as for fp32, so that nothing of them is new here.
MOST_INPUTS = 2


def make_sweep(count):
    """Numbers of every exponent, and many where functions bend."""
    generator = torch.Generator().manual_seed(16)
    if count > MOST_INPUTS:
        return torch.empty(count, 0)
    exponents = torch.arange(256).repeat_interleave(128) << 23
    digits = torch.randint(0, 1 << 23, (256 * 128,), generator=generator)
    digits[::128], digits[1::128] = 0, (1 << 23) - 1
    bits = (exponents | digits).int()
    every = torch.cat([bits.view(torch.float32), -bits.view(torch.float32)])
    every = every[~every.isnan()]
    bends = torch.cat([torch.linspace(-limit, limit, 40001) for limit in (0.5, 8.0, 110.0)])
    one = 1 + torch.linspace(-0.1, 0.1, 20001)
    # In an order of its own for each argument.
    first = torch.cat([every, bends, one])
    orders = [torch.arange(len(first))]
    orders += [torch.randperm(len(first), generator=generator) for _ in range(count - 1)]
    return torch.stack([first[order] for order in orders])


@pytest.fixture(scope="module")
def printer(tmp_path_factory):
    print_all, _ = make_printer(tmp_path_factory.mktemp("print"))
    return lambda texts: print_all(texts, mode="host_for_16_bits")


@pytest.fixture(scope="module")
def texts():
    return [write_text(word, WORDS[word], numbers) for word, numbers in CASES]


@pytest.fixture(scope="module")
def run(printer, texts, tmp_path_factory):
    return compile_printed(printer([t for t, _ in texts]), tmp_path_factory.mktemp("printed"))


def overflow(x):
    """Infinity for what either type of 16 bits rounds to it."""
    return torch.where(x.abs() >= 2.0**128 - 2.0**119, torch.sign(x) * torch.inf, x)


def judge(case, count, run):
    """Faults by the errors of instructions."""
    word, numbers = CASES[case]
    inputs = torch.cat([make_inputs(count), make_sweep(count)], 1)
    eager = run_word(word, WORDS[word], numbers, inputs)
    truth = run_word(word, WORDS[word], numbers, inputs.double())
    if word in ("mish", "softplus"):
        eager = truth.float()  # the CPU's vectors are of other formulas
    eager, truth = overflow(eager), overflow(truth)
    faults = {}
    for name, errors in ERRORS.items():
        (ours,) = run(inputs, errors)
        faults[name] = find_faults(word, overflow(ours), eager, truth, inputs, RELATIVE, LEAST)
    return faults


def name_case(word, numbers):
    return " ".join([word, *(f"{place}:{number}" for place, number in numbers.items())])


@pytest.mark.parametrize("case", range(len(CASES)), ids=[name_case(*case) for case in CASES])
def test_word(run, texts, case):
    faults = judge(case, texts[case][1], lambda x, errors: run(case, list(x), errors=errors))
    assert faults == {name: [] for name in ERRORS}


def test_errors_are_noticed(printer, texts, tmp_path):
    """Of a constant that is off by 2^-10 of it, and of a polynomial for small numbers left out."""
    planted = {
        "gelu": ("-1.15029354f", "-1.1514f"),
        "exp": ("1.44269504f", "1.4427f"),
        "tanh": ("0.25f, near", "0.0f, near"),
        "log": ("fabsf(rest), 0.0625f", "fabsf(rest), 0.0f"),
        "silu": ("0.00390625f", "1.0f"),
    }
    cases = [CASES.index((word, {})) for word in planted]
    sources = printer([texts[case][0] for case in cases])
    for i, change in enumerate(planted.values()):
        assert change[0] in sources[i], sources[i]
        sources[i] = sources[i].replace(*change)
    run = compile_printed(sources, tmp_path)
    for i, case in enumerate(cases):
        faults = judge(case, 1, lambda x, errors, i=i: run(i, list(x), errors=errors))
        assert any(faults.values()), CASES[case]
