"""Programs as text and as the C++ that is printed of them, and that C++ compiled for the host."""

import ctypes
import subprocess

import torch
from host_program import compile_host_program

from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT

SHIM = "tests/host/programs/device_functions.hpp"


def write_number(number):
    return float(number).hex()


def write_text(word, signature, numbers):
    """A program of this one word, and how many inputs it has: acc, p0, p1, ... are its arguments,
    but those of `numbers`, which maps places to numbers. A bool is that an input is not 0."""
    lines, arguments, inputs = [], [], 0
    types, result = signature.split(">")
    for place, kind in enumerate(types):
        if place in numbers:
            arguments.append(write_number(numbers[place]))
            continue
        argument = "acc" if inputs == 0 else f"p{inputs - 1}"
        inputs += 1
        if kind == "b":
            lines.append(f"ne {argument} {write_number(0)}")
            argument = f"v{len(lines) - 1}"
        arguments.append(argument)
    lines.append(" ".join([word, *arguments]))
    if result == "b":
        lines.append(f"float v{len(lines) - 1}")
    return join_lines(lines, max(inputs - 1, 0)), inputs


def join_lines(lines, operands, outputs=None):
    """The text of a program that returns its last line, or `outputs`."""
    named = [f"v{i} = {line}" for i, line in enumerate(lines)]
    returned = " ".join(["return", *(outputs or [f"v{len(lines) - 1}"])])
    return "\n".join(["program 1", f"operands {operands}", *named, returned, ""])


def make_printer(folder):
    """print_all(texts) -> the source of each, and the table of words as the compiler has it. `mode`
    is a line of tests/host/programs/print.cpp."""
    program = compile_host_program("programs/print", folder)

    def print_all(texts, mode=None):
        lines = [text.encode().hex() for text in texts]
        sources = "\n".join(program([mode, *lines] if mode else lines)).split("\n====")
        assert len(sources) == len(texts) + 1
        return [source.lstrip("\n") + "\n" for source in sources[: len(texts)]]

    return print_all, dict(line.split() for line in program(["words"]))


def compile_printed(sources, folder):
    """run(index, inputs, outputs) -> the results of one of the sources: fp32 tensors of a size,
    acc first. `errors`: instruction_errors of tests/host/programs/instructions.hpp."""
    path = folder / "printed.cpp"
    parts = [f'#include "{ROOT / SHIM}"']
    cases = []
    for i, source in enumerate(sources):
        parts.append(f"namespace case{i} {{\n{source}}}")
        cases.append(f"    case {i}: case{i}::cutlass_fused_program(x[0], x + 1, y); break;")
    parts += [
        'extern "C" void run(int index, long count, int inputs, float const* x, int outputs,',
        "                    float* y, int errors) {",
        "  instruction_errors = errors;",
        "  for (long i = 0; i < count; ++i, x += inputs, y += outputs) switch (index) {",
        *cases,
        "  }\n}\n",
    ]
    path.write_text("\n".join(parts))
    # As the device compiles it: no fma but those that are written, no fast maths.
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared"]
    library = path.with_suffix(".so")
    subprocess.run([name_host_compiler(), *options, path, "-o", library], check=True)
    compiled = ctypes.CDLL(str(library))

    def run(index, inputs, outputs=1, errors=0):
        x = torch.stack(inputs, 1).contiguous()
        y = torch.empty(len(x), outputs)
        arguments = (index, ctypes.c_long(len(x)), x.shape[1], ctypes.c_void_p(x.data_ptr()))
        compiled.run(*arguments, outputs, ctypes.c_void_p(y.data_ptr()), errors)
        return list(y.unbind(1))

    return run
