"""Python reads what C++ reads, and refuses what C++ refuses."""

import pytest
import traced
from host_program import compile_host_program
from program_cases import CASES
from program_texts import GOOD, MALFORMED, OTHER_NUMBERS, make_mutated, make_program

from cutlass_fused.programs.parse import parse


def is_read(text):
    try:
        parse(text)
    except ValueError as error:
        assert "must" in str(error) and str(error).isprintable()
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_own_programs(name):
    case = CASES[name]
    program = traced.find_program(name, case)
    assert parse(program.text) == program or "nan" in program.text


@pytest.mark.parametrize("name", GOOD)
def test_good(name):
    assert is_read(GOOD[name])


@pytest.mark.parametrize("index", range(len(MALFORMED)))
def test_malformed(index):
    assert not is_read(MALFORMED[index][0])


@pytest.mark.parametrize("number", OTHER_NUMBERS)
def test_other_numbers(number):
    assert not is_read(make_program(f"v0 = neg {number}", "return v0"))


@pytest.mark.parametrize("text", ["{}", "program 1\n{}", "program 1\noperands 0\nv0 = {}"])
def test_messages_are_short(text):
    with pytest.raises(ValueError) as caught:
        parse(text.format("9" * 60000) + "\n")
    assert len(str(caught.value)) < 200


def test_mutated(tmp_path):
    program = compile_host_program("programs/parse", tmp_path)
    texts = [text for text in make_mutated(20_000) if text.isascii()]
    answers = program([text.hex() for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        assert is_read(text.decode()) == answer.startswith("parsed"), text
