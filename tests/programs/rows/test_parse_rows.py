"""The text of programs of rows: what Python and C++ read, and what both refuse."""

import pytest
from host_program import compile_host_program
from row_cases import ROW_CASES, find_row_program

from build_system.paths import ROOT
from cutlass_fused.programs.parse import parse
from cutlass_fused.programs.program import MOST_COLUMNS
from cutlass_fused.programs.words import ROW_WORDS

SUM = "program 1\noperands 0\ncolumns 48\nv0 = row_sum acc 0x1.8p+4\nreturn v0:24\n"
GOOD = {
    "sum": SUM,
    "of all": SUM.replace("0x1.8p+4", "0x1.8p+5").replace(":24", ":48 v0 acc:48 0x1.0p+0:2"),
    "of one": SUM.replace("0x1.8p+4", "0x1.0p+0").replace(":24", ""),
    "no word": "program 1\noperands 0\ncolumns 16777216\nreturn acc:2\n",
}
BAD = {
    "no columns": (SUM.replace("columns 48\n", ""), "line 3: expected columns behind operands"),
    "no number": (SUM.replace("columns 48", "columns"), "line 3: expected a count from 1 to"),
    "none": (SUM.replace("columns 48", "columns 0"), "line 3: expected a count from 1 to"),
    "too many": (SUM.replace("48", "16777217"), "line 3: expected a count from 1 to 16777216"),
    "far too many": (SUM.replace("48", "9" * 40), "line 3: expected a count from 1 to 16777216"),
    "leading zero": (SUM.replace("48", "048"), "line 3: expected a count from 1 to"),
    "two numbers": (SUM.replace("columns 48", "columns 48 48"), "line 3: expected the end"),
    "twice": (SUM.replace("columns 48", "columns 48\ncolumns 48"), 'line 4: expected "v0"'),
    "other width": (SUM.replace("0x1.8p+4", "0x1.4p+2"), "line 4: expected a width that divides"),
    "no whole width": (SUM.replace("0x1.8p+4", "0x1.8p+0"), "line 4: expected a width that"),
    "zero": (SUM.replace("0x1.8p+4", "0x0.0p+0"), "line 4: expected a width that divides"),
    "negative": (SUM.replace("0x1.8p+4", "-0x1.8p+4"), "line 4: expected a width that divides"),
    "nan": (SUM.replace("0x1.8p+4", "nan"), "line 4: expected a width that divides"),
    "infinite": (SUM.replace("0x1.8p+4", "inf"), "line 4: expected a width that divides"),
    "a value": (SUM.replace("0x1.8p+4", "acc"), "line 4: expected a number as argument 2"),
    "output": (SUM.replace(":24", ":7"), "line 5: expected a width that divides"),
    "output of none": (SUM.replace(":24", ":"), "line 5: expected a width that divides"),
    "output of zero": (SUM.replace(":24", ":0"), "line 5: expected a width that divides"),
    "output of text": (SUM.replace(":24", ":x"), "line 5: expected a width that divides"),
    "two widths": (SUM.replace(":24", ":24:24"), "line 5: expected a width that divides"),
    "no value": (SUM.replace("v0:24", ":24"), "line 5: expected a float as output 1"),
    "width of elements": ("program 1\noperands 0\nreturn acc:2\n", "line 3: expected a width that"),
}


@pytest.fixture(scope="module")
def parse_all(tmp_path_factory):
    program = compile_host_program("programs/parse", tmp_path_factory.mktemp("parse"))
    return lambda texts: program([text.encode().hex() for text in texts])


def test_good(parse_all):
    own = [find_row_program(name, 48).program.text for name in ROW_CASES]
    texts = [*GOOD.values(), *own]
    for text, answer in zip(texts, parse_all(texts), strict=True):
        assert answer.startswith("parsed"), (text, answer)
        parse(text)


@pytest.mark.parametrize("name", BAD)
def test_bad(parse_all, name):
    text, message = BAD[name]
    (answer,) = parse_all([text])
    assert answer.startswith(message)
    with pytest.raises(ValueError, match="must"):
        parse(text)


def test_same_words_and_limits():
    words = (ROOT / "include/cutlass_fused/program/words.hpp").read_text()
    for name, word in ROW_WORDS.items():
        assert f'{{"{name}", "{word.signature}", ""}}' in words
    assert words.count(', ""}') == len(ROW_WORDS)
    limits = (ROOT / "include/cutlass_fused/program/program.hpp").read_text()
    assert MOST_COLUMNS == 1 << 24 and "kMostColumns = 1 << 24;" in limits
