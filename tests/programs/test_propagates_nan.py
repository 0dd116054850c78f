"""Which programs a NaN of acc passes through: by a walk over their lines, and as they compute."""

import itertools

import pytest
import torch
from host_program import compile_host_program
from printed_programs import compile_printed, join_lines, make_printer, write_number
from program_texts import make_program
from program_words import read_words

VALUES = [-float("inf"), -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, float("inf"), float("nan")]
NUMBERS = {"leaky_relu": [0.2], "elu": [1.0] * 3, "softplus": [1.0, 20.0]}
NUMBERS |= {"hardtanh": [-1.0, 1.0], "threshold": [0.5, 2.0]}
NAN = float("nan")


def write_word(word, signature, from_acc):
    """A program of the word, and how many operands it takes: arguments are acc where `from_acc`
    says so, else operands or numbers."""
    types, result = signature.split(">")
    lines, arguments, operands = [], [], 0
    numbers = iter(NUMBERS.get(word, ()))
    for type_, is_acc in zip(types, from_acc, strict=True):
        if type_ == "n":
            arguments.append(write_number(next(numbers)))
            continue
        operands += not is_acc
        argument = "acc" if is_acc else f"p{operands - 1}"
        if type_ == "b":
            lines.append(f"ne {argument} {write_number(0)}")
            argument = f"v{len(lines) - 1}"
        arguments.append(argument)
    lines.append(" ".join([word, *arguments]))
    if result == "b":
        lines.append(f"float v{len(lines) - 1}")
    return join_lines(lines, operands), operands


def list_programs():
    for word, signature in read_words().items():
        types = signature.split(">")[0]
        for from_acc in itertools.product((False, True), repeat=len(types)):
            if not any(
                is_acc and type_ != "f" for is_acc, type_ in zip(from_acc, types, strict=True)
            ):
                yield write_word(word, signature, from_acc)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    program = compile_host_program(
        "programs/propagates_nan", tmp_path_factory.mktemp("propagates_nan")
    )
    return lambda texts: [answer == "1" for answer in program([t.encode().hex() for t in texts])]


def test_words(ask, tmp_path):
    """Of every word, for each choice of floats that are acc: what is said is what happens, for all
    values of the others."""
    programs = list(dict.fromkeys(list_programs()))
    texts = [text for text, _ in programs]
    print_all, _ = make_printer(tmp_path)
    run = compile_printed(print_all(texts, "host"), tmp_path)
    found = []
    for i, (_, operands) in enumerate(programs):
        grid = list(itertools.product(VALUES, repeat=operands))
        grid = torch.tensor(grid).reshape(len(grid), operands)
        inputs = [torch.full((len(grid),), NAN), *grid.unbind(1)]
        found.append(bool(run(i, inputs)[0].isnan().all()))
    said = ask(texts)
    assert [t for t, f, s in zip(texts, found, said, strict=True) if f != s] == []
    assert 50 < sum(said) < len(said) - 50


def number(value):
    return write_number(value)


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["return acc"], True),
        (["return p0"], False),
        (["return p0 acc"], False),
        (["return acc p0"], True),
        ([f"return {number(1)}"], False),
        (["return nan"], False),  # not said, though it is
        (["v0 = mul p0 p1", "v1 = add v0 acc", "v2 = gelu v1", "return v2 p0"], True),
        # LeakyReLU as it is written by hand, and a gate that may hide acc.
        (["v0 = gt acc p0", "v1 = mul acc p1", "v2 = where v0 acc v1", "return v2"], True),
        (["v0 = gt acc p0", "v1 = where v0 acc p1", "return v1"], False),
        (["v0 = gt p0 p1", f"v1 = where v0 acc {number(0)}", "return v1"], False),
        (["v0 = sign acc", "v1 = mul v0 p0", "return v1"], False),
        (["v0 = sign acc", "v1 = mul v0 acc", "return v1"], True),
        ([f"v0 = pow acc {number(3)}", "return v0"], True),
        ([f"v0 = pow acc {number(0)}", "return v0"], False),
        (["v0 = pow acc 0x1.0p-200", "return v0"], False),  # 0 as a float
        ([f"v0 = pow {number(2)} acc", "return v0"], False),  # not said, though it is
        (["v0 = pow acc p0", "return v0"], False),
    ],
)
def test_programs(ask, lines, expected):
    assert ask([make_program(*lines)]) == [expected]
