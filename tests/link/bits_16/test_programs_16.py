"""Sixty programs and their gradients with results of 16 bits, compiled for the host: within the
accuracy rule, with the errors of instructions as large as they may be."""

import pytest
import torch
import traced
from printed_programs import compile_printed, make_printer
from program_cases import CASES

from cutlass_fused.programs.program import Acc, run
from cutlass_fused.programs.tracing.trace import Refusal

SHAPE = (64, 512)
ERRORS = (0, 1, -1, 2)  # of tests/host/programs/instructions.hpp


def make_forward(name):
    """The program, and its inputs for tensors."""
    return traced.find_program(name, CASES[name]), lambda tensors: tensors


def make_gradient(name):
    case = CASES[name]
    try:
        gradient = traced.find_gradient(name, case)
    except Refusal:
        return None

    def make_inputs(tensors):
        generator = torch.Generator().manual_seed(7)
        grads = [torch.randn(SHAPE, generator=generator).double() for _ in range(8)]
        chosen = [
            grads[each]
            if isinstance(each, int)
            else tensors[0 if isinstance(each, Acc) else 1 + each.index]
            for each in gradient.operands
        ]
        return [grads[0], *chosen]

    return gradient.program, make_inputs


FORWARD = {name: make_forward(name) for name in CASES}
MADE = {name: make_gradient(name) for name in CASES}
GRADIENTS = {f"gradient of {name}": made for name, made in MADE.items() if made is not None}
ALL = FORWARD | GRADIENTS


@pytest.fixture(scope="module")
def run_printed(tmp_path_factory):
    print_all, _ = make_printer(tmp_path_factory.mktemp("print"))
    texts = [program.text for program, _ in ALL.values()]
    sources = print_all(texts, mode="host_for_16_bits")
    return compile_printed(sources, tmp_path_factory.mktemp("printed"))


def test_gradients_are_there():
    assert len(GRADIENTS) >= len(CASES) - 3


@pytest.mark.parametrize("name", ALL)
def test_errors(run_printed, name):
    program, make_inputs = ALL[name]
    case = CASES[name.removeprefix("gradient of ")]
    # What fp32 holds, of which float64 computes the truth.
    tensors = [each.float().double() for each in traced.make_tensors(case, shape=SHAPE)]
    inputs = [each.float().double() for each in make_inputs(tensors)]
    truths = run(program, inputs[0], inputs[1:])
    eagers = run(program, inputs[0].float(), [each.float() for each in inputs[1:]])
    flat = [each.float().expand(SHAPE).flatten() for each in inputs]
    for errors in ERRORS:
        found = run_printed(list(ALL).index(name), flat, len(program.outputs), errors)
        for y, eager, truth in zip(found, eagers, truths, strict=True):
            judge(y, eager.expand(SHAPE).flatten(), truth.expand(SHAPE).flatten())


def judge(y, eager, truth):
    """Twice the error of PyTorch's function in fp32, each rounded once: in norm, and at most."""
    for dtype in (torch.bfloat16, torch.float16):
        error, of_eager = (each.to(dtype).double() - truth for each in (y, eager))
        assert torch.equal(error.isfinite(), of_eager.isfinite())
        error, of_eager = (each[each.isfinite()] for each in (error, of_eager))
        assert error.norm() <= 1.05 * of_eager.norm()
        assert error.abs().max() <= 1.25 * of_eager.abs().max()
