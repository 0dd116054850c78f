"""Which arithmetic a program has: PyTorch's of fp32, unless all that it computes is rounded to 16
bits; then program/prelude_16.hpp's, but where the last bit decides."""

import re
import subprocess

import pytest
import torch
from nvrtc import compile_to_ptx
from open_texts import compile_link_program
from pointwise_kernels import Kernel, make_kernel_printer
from printed_programs import join_lines, make_printer
from program_texts import make_program
from program_words import read_words
from word_functions import NUMBERS

HALF, WIDE, BRAIN = "float16", "float32", "bfloat16"
GELU = make_program("v0 = gelu acc", "return v0", operands=0)
BESIDE = make_program("v0 = gelu acc", "return {}", operands=1)


@pytest.fixture(scope="module")
def print_within(tmp_path_factory):
    program = compile_link_program("slots", tmp_path_factory.mktemp("slots"))

    def run(text, *outputs):
        count = int(text.split()[3])
        operands = ",".join([f"{WIDE}:row"] * count) or "-"
        line = f"0 {operands} {','.join(outputs)} {text.encode().hex()}"
        found = subprocess.run([program], input=line, capture_output=True, text=True, check=True)
        return found.stdout

    return run


@pytest.fixture(scope="module")
def print_for_16(tmp_path_factory):
    print_all, _ = make_printer(tmp_path_factory.mktemp("print"))
    return lambda text: print_all([text], mode="for_16_bits")[0]


def is_for_16(source):
    assert ("gelu_16" in source) != ("erff" in source)
    return "gelu_16" in source


@pytest.mark.parametrize(
    "text, outputs, expected",
    [
        (GELU, (HALF,), True),
        (GELU, (BRAIN,), True),
        (GELU, (WIDE,), False),
        (BESIDE.format("v0 v0"), (BRAIN, HALF), True),
        (BESIDE.format("v0 v0"), (BRAIN, WIDE), False),
        (BESIDE.format("v0 v0"), (WIDE, BRAIN), False),
        # What is handed out as it is.
        (BESIDE.format("v0 acc"), (BRAIN, WIDE), True),
        (BESIDE.format("p0 v0 0x1.0p+0"), (WIDE, BRAIN, WIDE), True),
    ],
)
def test_types_of_outputs(print_within, text, outputs, expected):
    assert is_for_16(print_within(text, *outputs)) == expected


def test_kernels_behind_products(tmp_path):
    """As within them."""
    print_all = make_kernel_printer(tmp_path)
    tile = ((torch.bfloat16, "tile"),)
    outputs = (torch.float16, torch.float32)
    sources = print_all([Kernel(GELU, 1, tile, (output,)) for output in outputs])
    assert [is_for_16(source) for source in sources] == [True, False]


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["div acc p0", "exp v0"], ["approx_quotient", "exp_16"]),
        (["div acc 0x1.8p+1"], ["1.0f / __int_as_float"]),
        # A quotient is the least bit below what it should be, and a whole number less.
        (["div acc p0", "mul v0 0x1.0p+1", "floor v1"], ["acc / p0"]),
        (["exp acc", "gt v0 0x1.0p+0", "float v1"], ["expf"]),
        (["exp acc", "gt p0 0x1.0p+0", "where v1 v0 acc"], ["exp_16"]),
        # ... or above, and behind an end or at a pole of what follows.
        (["div acc p0", "sub 0x1.0p+0 v0", "sqrt v1"], ["acc / p0", "approx_sqrt"]),
        (["reciprocal acc", "sub 0x1.0p+0 v0", "div p0 v1"], ["1.0f / acc", "approx_quotient"]),
        (["exp acc", "log v0"], ["exp_16", "log2_16"]),
        # Exponents.
        (["pow acc 0x1.4p+1"], ["pow_16"]),
        (["pow acc -0x1.0p+0"], ["approx_reciprocal"]),
        (["pow acc 0x1.0p-1"], ["approx_sqrt"]),
        (["pow acc -0x1.0p+1"], ["approx_reciprocal"]),
        (["pow acc 0x1.8p+2"], ["powf"]),
        (["pow acc 0x1.02p+6"], ["powf"]),
        (["pow acc inf"], ["powf"]),
        (["pow acc p0"], ["powf"]),
    ],
)
def test_lines(print_for_16, lines, expected):
    source = print_for_16(join_lines(lines, 1))
    body = source[source.index("void cutlass_fused_program(") :]
    names = r"\w+_16(?=\()|approx_\w+|expf|powf|sqrtf|logf|[\w.]+ / \w+"
    found = [each.removeprefix("cutlass_fused_") for each in re.findall(names, body)]
    assert found == expected


# Words that jump, have an end or a pole: behind each of them the last bit of a quotient may decide.
DECIDES = set("floor ceil round trunc sign fmod remainder threshold eq ne lt le gt ge".split())
DECIDES |= set("sqrt rsqrt reciprocal log log2 log10 log1p asin acos acosh atanh div pow".split())


def test_quotients_in_front_of_every_word(print_for_16):
    found = set()
    for word, signature in read_words().items():
        numbers = NUMBERS.get(word, [{}])[0]
        names = {"f": "v1", "b": "v0"}
        arguments = [
            float(numbers[i]).hex() if i in numbers else names[kind]
            for i, kind in enumerate(signature.partition(">")[0])
        ]
        lines = ["ne acc acc", "div acc p0", " ".join([word, *arguments])]
        source = print_for_16(join_lines(lines + ["float v2"] * (signature[-1] == "b"), 1))
        body = source[source.index("void cutlass_fused_program(") :]
        assert ("v1 = acc / p0" in body) != ("v1 = cutlass_fused_approx_quotient" in body)
        if "v1 = acc / p0" in body:
            found.add(word)
    assert found == DECIDES


def test_every_word_without_a_branch(print_within):
    """But those that have no other function."""
    others = set("sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 fmod".split())
    others |= {"remainder", "pow"}
    others |= {"prelu", "leaky_relu"}  # of which an assembler makes one product under a condition
    branching = set()
    for word, signature in read_words().items():
        numbers = NUMBERS.get(word, [{}])[0]
        names = {"f": iter(("acc", "p0", "p1")), "b": iter(("v0", "v1"))}
        lines = ["ne acc p0", "ne acc p1"]
        arguments = [
            float(numbers[i]).hex() if i in numbers else next(names[kind])
            for i, kind in enumerate(signature.partition(">")[0])
        ]
        lines.append(" ".join([word, *arguments]))
        if signature[-1] == "b":
            lines.append("float v2")
        source = print_within(join_lines(lines, 2), BRAIN).partition("\n")[2]
        ptx, log = compile_to_ptx(
            source.removesuffix("====\n"), ["--std=c++17", "-arch=compute_90a", "-fmad=false"]
        )
        assert ptx is not None, log
        if re.search(r"\bbra\b|\bcall\b|div\.rn|sqrt\.rn|rcp\.rn", ptx):
            branching.add(word)
    assert branching <= others, branching - others
