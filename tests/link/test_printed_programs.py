"""What is printed of programs is CUDA C++ to NVRTC, without a header."""

import re

import pytest
from nvrtc import compile_to_ptx
from printed_programs import join_lines, make_printer
from program_words import read_words
from word_functions import NUMBERS

WORDS = read_words()
# With what a compiler is free to do by default: an fma is contracted where there may be one.
OPTIONS = ["--std=c++17"]
KERNEL = """
extern "C" __global__ void run(float const* x, float* y) {
  cutlass_fused_program(x[0], x + 1, y);
}
"""
# Sums of a product, of the product in which a function ends, and of one in front of a function that
# begins with a sum.
CONTRACTIBLE = [
    join_lines(lines, 2)
    for lines in (
        ["mul acc p0", "add v0 p1"],
        ["mul acc p0", "sub p1 v0"],
        ["hardsigmoid acc", "add v0 p1"],
        ["pow acc 0x1.0p+1", "add v0 p1"],
        ["mul acc p0", "hardswish v0"],
    )
]
# As if the printer wrote operators.
PLAIN = "".join(
    f"#define __f{name}_rn(x, y) ((x) {operator} (y))\n"
    for name, operator in (("add", "+"), ("sub", "-"), ("mul", "*"))
)


@pytest.fixture(scope="module")
def print_one(tmp_path_factory):
    print_all, _ = make_printer(tmp_path_factory.mktemp("print"))
    return lambda text: print_all([text])[0]


def write_every_word():
    """A program of all words, each with all its numbers. What they return is summed up, or all of
    it would be left out."""
    lines = ["ne acc p0", "ne acc p1"]
    total = "acc"
    for word, signature in WORDS.items():
        types, result = signature.split(">")
        for numbers in NUMBERS.get(word, [{}]):
            names = {"f": iter(("acc", "p0", "p1")), "b": iter(("v0", "v1"))}
            arguments = [
                float(numbers[i]).hex() if i in numbers else next(names[kind])
                for i, kind in enumerate(types)
            ]
            lines.append(" ".join([word, *arguments]))
            if result == "b":
                lines.append(f"float v{len(lines) - 1}")
            lines.append(f"add {total} v{len(lines) - 1}")
            total = f"v{len(lines) - 1}"
    return join_lines(lines, 2)


@pytest.mark.parametrize("arch", ["compute_80", "compute_90a"])
def test_every_word_compiles(print_one, arch):
    source = print_one(write_every_word())
    ptx, log = compile_to_ptx(source + KERNEL, [*OPTIONS, f"-arch={arch}"])
    assert ptx is not None and log.strip("\n\0") == "", log
    assert ".entry run" in ptx


def test_misspelt_function_is_noticed(print_one):
    source = print_one(join_lines(["erf acc"], 0)).replace("erff", "erfff")
    ptx, log = compile_to_ptx(source + KERNEL, [*OPTIONS, "-arch=compute_80"])
    assert ptx is None and '"erfff" is undefined' in log


def may_be_contracted(ptx):
    """By this compiler or, where no rounding is named, by the one behind it."""
    has_both = re.search(r"\bmul\.f32", ptx) and re.search(r"\b(add|sub)\.f32", ptx)
    return "fma.rn" in ptx or bool(has_both)


@pytest.mark.parametrize("text", CONTRACTIBLE, ids=lambda text: text.splitlines()[-2])
def test_no_line_is_contracted_with_another(print_one, text):
    """Each is rounded by itself, as PyTorch's ops are."""
    source = print_one(text) + KERNEL
    ptx, plain = (
        compile_to_ptx(each, [*OPTIONS, "-arch=compute_80"])[0] for each in (source, PLAIN + source)
    )
    assert not may_be_contracted(ptx)
    assert may_be_contracted(plain)
