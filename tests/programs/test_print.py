"""The C++ that is printed of programs, compiled for the host and compared with PyTorch: every word,
on special values and random ones. tests/host/programs/device_functions.hpp is the GPU."""

import math
import re

import pytest
import torch
from printed_programs import compile_printed, join_lines, make_printer, write_text
from program_words import read_words
from word_functions import NUMBERS, SIGNS_OF_ZEROS_DIFFER, find_faults, make_inputs, run_word

WORDS = read_words()
CASES = [(word, numbers) for word in WORDS for numbers in NUMBERS.get(word, [{}])]

# Several lines, outputs and constants.
CHAIN = join_lines(
    ["mul acc p0", "add v0 p1", "gt v1 0x0.0p+0", "where v2 v1 -0x1.0p-1", "neg nan"],
    2,
    ["v3", "acc", "p1", "p0", "inf", "-0x0.0p+0", "0x1.0p+1000", "v4"],
)
MULTIPLY_ADD = join_lines(["mul acc p0", "add v0 p1", "sub v0 p1"], 2, ["v1", "v2"])
OPERANDS_IN_TURN = join_lines([], 2, ["p1", "p0"])
WHOLE = [CHAIN, MULTIPLY_ADD, OPERANDS_IN_TURN]
# What functions of words call.
HELPERS = (
    "cutlass_fused_log1p_of_positive",
    "cutlass_fused_if_less",
    "cutlass_fused_approx_reciprocal",
)


@pytest.fixture(scope="module")
def printer(tmp_path_factory):
    return make_printer(tmp_path_factory.mktemp("print"))


@pytest.fixture(scope="module")
def texts():
    """Of the cases, with the number of their inputs."""
    return [write_text(word, WORDS[word], numbers) for word, numbers in CASES]


@pytest.fixture(scope="module")
def run(printer, texts, tmp_path_factory):
    print_all, _ = printer
    sources = print_all([*(text for text, _ in texts), *WHOLE], "host")
    return compile_printed(sources, tmp_path_factory.mktemp("printed"))


def run_whole(run, text, inputs, outputs):
    return run(len(CASES) + WHOLE.index(text), inputs, outputs)


def name_case(word, numbers):
    return " ".join([word, *(f"{place}:{number}" for place, number in numbers.items())])


def test_table_is_that_of_the_compiler(printer):
    _, words = printer
    assert words == WORDS
    assert set(NUMBERS) <= set(words)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[name_case(*case) for case in CASES])
def test_word_is_pytorchs(run, texts, case):
    word, numbers = CASES[case]
    inputs = make_inputs(texts[case][1])
    (ours,) = run(case, list(inputs))
    eager = run_word(word, WORDS[word], numbers, inputs)
    truth = run_word(word, WORDS[word], numbers, inputs.double())
    assert find_faults(word, ours, eager, truth, inputs) == []


def test_zeros_where_kernels_differ(run):
    """0 is above -0 for maximum and minimum, and an x that equals a bound of clamp is kept."""
    zeros = torch.tensor([0.0, -0.0])
    x, y = zeros.repeat_interleave(2), zeros.repeat(2)
    one = torch.ones(4)
    cases = [
        ("maximum", [x, y], [False, False, False, True]),
        ("minimum", [x, y], [False, True, True, True]),
        ("clamp", [x, y, one], [False, False, True, True]),
        ("clamp", [x, -one, y], [False, False, True, True]),
    ]
    assert {word for word, _, _ in cases} == set(SIGNS_OF_ZEROS_DIFFER)
    for word, inputs, expected in cases:
        (result,) = run(CASES.index((word, {})), inputs)
        assert torch.equal(result, torch.zeros(4))
        assert torch.signbit(result).tolist() == expected, word


def test_program_of_several_lines(run):
    acc, p0, p1 = make_inputs(3)
    v3, *rest, v4 = run_whole(run, CHAIN, [acc, p0, p1], 8)
    sum_ = acc * p0 + p1
    assert torch.equal(v3, torch.where(sum_ > 0, sum_, -0.5))
    for ours, expected in zip(rest[:3], (acc, p1, p0), strict=True):
        assert torch.equal(ours.view(torch.int32), expected.contiguous().view(torch.int32))
    for ours, expected in zip(rest[3:], (math.inf, -0.0, math.inf), strict=True):
        assert (ours == expected).all() and (torch.signbit(ours) == (expected == 0)).all()
    assert v4.isnan().all()


def test_outputs_may_take_the_place_of_operands(printer):
    """All operands are read before anything is written."""
    (source,) = printer[0]([OPERANDS_IN_TURN])
    assert source.index("= p[1];") < source.index("y[0] = p1;") < source.index("y[1] = p0;")


def test_source_of_a_program(printer):
    """All of it, as one reads it."""
    text = join_lines(
        [
            "add acc p0",
            "leaky_relu v0 0x1.0p-3",
            "le v1 -inf",
            "pow v1 0x1.0p+1",
            "where v2 v3 nan",
        ],
        1,
    )
    (source,) = printer[0]([text])
    assert (
        source
        == """\
__device__ __forceinline__ float cutlass_fused_leaky_relu(float const x, float const slope) {
  return x > 0.0f ? x : __fmul_rn(x, slope);
}

__device__ __forceinline__ void cutlass_fused_program(
    float const acc, float const* const p, float* const y) {
  float const p0 = p[0];
  float const v0 = __fadd_rn(acc, p0);
  float const v1 = cutlass_fused_leaky_relu(v0, __int_as_float(0x3e000000));
  bool const v2 = v1 <= __int_as_float(0xff800000);
  float const v3 = __fmul_rn(v1, v1);
  float const v4 = v2 ? v3 : __int_as_float(0x7fc00000);
  y[0] = v4;
}
"""
    )


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        (1.0, 0x3F800000),
        (-0.0, 0x80000000),
        (0.1, 0x3DCCCCCD),
        (1 + 2.0**-24, 0x3F800000),  # half way: to the even
        (1 + 3 * 2.0**-24, 0x3F800002),
        (1 + 2.0**-24 + 2.0**-52, 0x3F800001),
        (2.0**-149, 0x00000001),
        (2.0**-150, 0x00000000),
        (5e-324, 0x00000000),
        (-3.4028235677973366e38, 0xFF800000),  # half way to what would be next: infinity
        (3.4028235677973362e38, 0x7F7FFFFF),
        (1.7976931348623157e308, 0x7F800000),
        (-math.inf, 0xFF800000),
        (math.nan, 0x7FC00000),
    ],
)
def test_numbers_are_rounded_to_floats(printer, number, bits):
    (source,) = printer[0]([join_lines([], 0, [number.hex()])])
    assert re.findall(r"__int_as_float\((0x\w{8})\)", source) == [f"0x{bits:08x}"]


def test_sources_hold_functions_once_and_only_those_called(printer, texts):
    for source in printer[0]([text for text, _ in texts]):
        defined = re.findall(r"__forceinline__ \w+ (\w+)\(", source)
        assert sorted(defined) == sorted(set(re.findall(r"cutlass_fused_\w+", source)))
        # The program, its word, and what only that calls.
        assert len(defined) == len(set(defined)) <= 2 + sum(each in defined for each in HELPERS)
        assert "#" not in source and "$" not in source
