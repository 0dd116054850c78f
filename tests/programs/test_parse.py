"""What is read of the text of a program, and what is refused: tests/host/programs/parse.cpp, with
the sanitizers where the host compiler has them."""

import math
import random
import re
import struct
import subprocess

import pytest
from host_program import compile_host_program
from program_texts import GOOD, MALFORMED, OTHER_NUMBERS, make_mutated, make_program
from program_words import read_words

SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def parse(tmp_path_factory):
    """parse(texts) -> what is said of each."""
    folder = tmp_path_factory.mktemp("parse")
    try:
        program = compile_host_program("programs/parse", folder, options=SANITIZED)
        program([])
    except subprocess.CalledProcessError:
        program = compile_host_program("programs/parse", folder)

    def run(texts):
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        answers = program([text.hex() for text in encoded])
        assert len(answers) == len(texts)
        return answers

    return run


def describe(text):
    """What tests/host/programs/parse.cpp says of a text that is right."""
    _, operands, *lines = text.splitlines()
    lines = [re.sub(r"^v\d+ = ", "", line) for line in lines]
    lines = [" ".join(map(describe_token, line.split())) for line in lines]
    return "; ".join(["parsed " + operands.split()[1], *lines])


def describe_token(token):
    if not re.fullmatch(r"-?0x.*|-?inf|nan", token):
        return token
    try:
        number = float.fromhex(token)
    except OverflowError:
        number = -math.inf if token[0] == "-" else math.inf
    return f"#{struct.pack('>d', number).hex()}"


@pytest.mark.parametrize("name", GOOD)
def test_good_program_is_read(parse, name):
    assert parse([GOOD[name]]) == [describe(GOOD[name])]


@pytest.mark.parametrize(("word", "signature"), read_words().items())
def test_every_word_is_read_by_its_signature(parse, word, signature):
    """With exactly its arguments, each of its type; a number is a float, too."""
    types, result = signature.split(">")
    truth = "v0 = eq acc acc"
    own = {"f": "acc", "b": "v0", "n": "0x1.0p+0"}
    arguments = [own[each] for each in types]

    def make(arguments):
        use = ["v2 = float v1", "return v2"] if result == "b" else ["return v1"]
        return make_program(truth, " ".join(["v1", "=", word, *arguments]), *use)

    changed = [[*arguments, "acc"], arguments[:-1]]
    changed += [
        [*arguments[:i], wrong, *arguments[i + 1 :]]
        for i, each in enumerate(types)
        for wrong in {"f": ["v0"], "b": ["acc", "0x1.0p+0"], "n": ["acc", "v0"]}[each]
    ]
    numbers = ["0x1.8p+1" if each == "f" else own[each] for each in types]
    good = [make(arguments), make(numbers)]
    answers = parse([*good, *map(make, changed)])
    assert answers[:2] == list(map(describe, good))
    assert all(re.match(r"line 4: expected .*, found ", answer) for answer in answers[2:])


def test_malformed_programs_are_refused(parse):
    """With the line, what was expected there, and what was found: all in one process, since each
    start of it takes longer than all of these."""
    answers = parse([text for text, _ in MALFORMED])
    for (text, message), answer in zip(MALFORMED, answers, strict=True):
        assert answer.startswith(message), text[:200]


@pytest.mark.parametrize("number", OTHER_NUMBERS)
def test_other_numbers_are_refused(parse, number):
    (answer,) = parse([make_program(f"v0 = neg {number}", "return v0")])
    assert answer.startswith("line 3: expected a float as argument 1 of neg, found ")


def test_mutated_programs_are_read_or_refused(parse):
    """Never a crash; and what is read is what the text says, so that nothing was skipped."""
    texts = make_mutated(20_000)
    parsed = 0
    for text, answer in zip(texts, parse(texts), strict=True):
        if answer.startswith("parsed"):
            assert answer == describe(text.decode()), text
            parsed += 1
        else:
            assert re.fullmatch(r"line \d+: expected [ -~]+, found [ -~]+", answer), text
    assert 300 < parsed < len(texts)


def test_random_bytes_are_refused(parse):
    generator = random.Random(1)
    texts = [generator.randbytes(generator.randrange(200)) for _ in range(1000)]
    assert all(answer.startswith("line ") for answer in parse(texts))
