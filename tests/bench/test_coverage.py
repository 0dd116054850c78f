"""bench.coverage without a GPU: its programs run, and a wrong product is told."""

import pytest
import torch

from bench import coverage
from bench.cases.programs import COMPILED, PROGRAMS
from cutlass_fused.graphs import _products
from cutlass_fused.matmul import _state

QUICK = [name for name in PROGRAMS if name not in COMPILED]


def test_there_are_twelve():
    assert len(PROGRAMS) == 12 and len(QUICK) == 10


@pytest.fixture
def table(capsys, monkeypatch):
    monkeypatch.setattr(coverage, "BLOCKS", 1)
    monkeypatch.setattr(_products, "DEVICES", set(_products.DEVICES))

    def run(*arguments):
        code = coverage.main(["--device", "cpu", "--programs", *arguments])
        rows = capsys.readouterr().out.splitlines()
        assert {row.count("|") for row in rows} == {9}
        return code, {row.split("|")[1].strip(): row for row in rows[2:]}

    yield run
    assert _state.word is None and _state.report is None


def test_programs_are_right_and_told(table):
    code, rows = table(*QUICK)
    assert code == 0 and list(rows) == QUICK
    assert all(row.endswith("| right |") for row in rows.values())
    # Nothing is neither served nor told of.
    for row in rows.values():
        served, compiled, left, seen = (cell.strip() for cell in row.split("|")[2:6])
        assert served != "0" or left != "-" or seen != "-", row
        assert compiled == "0"
    assert "mkldnn_rnn_layer" in rows["LSTM"]
    assert "convolution" in rows["1 x 1 convolutions"]
    assert "not float32" in rows["autocast"]


def test_a_wrong_product_is_told(table, monkeypatch):
    op = torch.ops.cutlass_fused.linear.default
    wrong = lambda *arguments: op(*arguments) * (1 + 1e-5)  # noqa: E731
    monkeypatch.setattr("cutlass_fused.matmul._served._linear", wrong)
    code, rows = table("MLP potential with forces", "LSTM")
    assert code == 1
    assert rows["MLP potential with forces"].endswith("| WRONG |")
    assert rows["LSTM"].endswith("| right |")
