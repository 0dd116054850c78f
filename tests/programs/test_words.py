"""Python and C++ have the same words."""

from program_words import read_words

from build_system.paths import ROOT
from cutlass_fused.programs import program
from cutlass_fused.programs.words import COMMUTATIVE, WORDS


def test_same_words():
    assert {name: word.signature for name, word in WORDS.items()} == read_words()


def test_commutative():
    assert set(COMMUTATIVE) <= set(WORDS)


def test_same_limits():
    header = (ROOT / "include/cutlass_fused/program/program.hpp").read_text()
    for name, limit in (
        ("kVersion", program.VERSION),
        ("kMostOperands", program.MOST_OPERANDS),
        ("kMostLines", program.MOST_LINES),
        ("kMostOutputs", program.MOST_OUTPUTS),
    ):
        assert f" {name} = {limit};" in header
