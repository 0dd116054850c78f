"""What a launch keeps for the next one with the same arguments: tests/host/memo.cpp."""

import random

import pytest
from host_program import compile_host_program

WORDS = 15  # of a key
# The arguments of a launch: m, n, k, x, ldx, weight, ldw, y, ldy, type of y, direction, count, GPU.
LAUNCH = (64, 128, 256, 4096, 256, 8192, 256, 65536, 128, 2, 0, 1, 0, 32768, 128)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return compile_host_program("memo", tmp_path_factory.mktemp("memo"))


def format_line(command, words):
    return " ".join(map(str, (command, *words)))


def test_what_was_made_is_kept(run):
    line = format_line("find", range(WORDS))
    assert run([line] * 3) == ["made 1", "kept 1", "kept 1"]


@pytest.mark.parametrize("place", range(WORDS))
def test_every_word_of_the_key_counts(run, place):
    other = list(range(WORDS))
    other[place] += 2**40
    lines = [format_line("find", words) for words in (range(WORDS), other)]
    assert run(lines) == ["made 1", "made 2"]


def test_keys_that_share_a_slot_do_not_share_a_value(run):
    """There are fewer slots than keys."""
    words = random.Random(0)
    keys = [tuple(words.randrange(2**62) for _ in range(WORDS)) for _ in range(2000)]
    asked = [*keys, *words.choices(keys, k=4000)]
    last, kept = {}, 0
    for key, answer in zip(asked, run([format_line("find", key) for key in asked]), strict=True):
        how, value = answer.split()
        if how == "kept":
            kept += 1
            assert last[key] == value
        last[key] = value
    assert 0 < kept < 4000


def test_what_cannot_be_made_is_not_kept(run):
    words = range(WORDS)
    lines = [format_line(command, words) for command in ("refuse", "find", "refuse")]
    assert run(lines) == ["none", "made 2", "kept 2"]


def test_what_cannot_be_made_leaves_nothing_of_what_was_there(run):
    """Not even for the key whose value stood in the slot."""
    words = random.Random(1)
    keys = [tuple(words.randrange(2**62) for _ in range(WORDS)) for _ in range(600)]
    lines = [
        *(format_line("find", key) for key in keys),
        *(format_line("refuse", words) for words in keys[300:]),
        *(format_line("find", key) for key in keys),
    ]
    answers = run(lines)
    made = dict(zip(keys, answers[:600], strict=True))
    for key, answer in zip(keys, answers[900:], strict=True):
        if answer.startswith("kept"):
            assert answer.split()[1] == made[key].split()[1]


@pytest.mark.parametrize("place", range(WORDS))
def test_every_argument_of_a_launch_is_in_its_key(run, place):
    other = list(LAUNCH)
    other[place] += 1
    keys = run([format_line("key", LAUNCH), format_line("key", other)])
    assert keys[0] != keys[1]
