"""bench.kernelbench.level2 on the CPU, on a checkout of small problems of our own."""

import json
import types

import pytest
import torch

from bench.kernelbench.level2 import __main__ as level2
from bench.kernelbench.level2 import measure, problems

# Ten columns: with fewer the mean of a row would hide that one of them is wrong.
PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.product, self.bn = nn.Linear(k, n), nn.BatchNorm1d(n)

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.rand(6, 8)]


def get_init_inputs():
    return [8, 10]
"""
FORWARDS = {
    "3_Gemm_Tanh_Sum": "return torch.tanh(self.product(x)).sum(dim=1)",
    "21_Matmul_BatchNorm": "return self.bn(self.product(x))",
    "8_BMM_BatchNorm_Tanh_Scale": "return torch.tanh(self.bn(self.product(x))) * 2.0",
    "9_Gemm_Sum_Add": "return self.product(x).sum(dim=1, keepdim=True) + x",
    "5_Matmul_CumSum": "return torch.cumsum(self.product(x), 1)",
    "4_Conv2d_Tanh": "raise AssertionError",
}


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / problems.FOLDER
    folder.mkdir(parents=True)
    for name, forward in FORWARDS.items():
        (folder / f"{name}.py").write_text(PROBLEM.format(forward=forward))
    (folder / "notes.txt").write_text("no problem")
    return tmp_path


@pytest.fixture
def run(checkout, capsys):
    """run(*options) -> exit status, rows, what was printed. torch.compile is left out: it takes
    seconds for each problem."""
    out = checkout / "found.jsonl"

    def run(*options):
        given = [str(checkout), "--out", str(out), "--rounds", "1", "--variants", "eager,fuse"]
        status = level2.main([*given, *options], "cpu")
        return status, [json.loads(line) for line in out.read_text().splitlines()], capsys

    return run


def test_lists_those_with_a_product_by_number(checkout):
    names = [each.name for each in problems.list_problems(checkout)]
    assert [name.split("_")[0] for name in names] == ["3", "5", "8", "9", "21"]


def test_a_checkout_without_problems_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="level2"):
        problems.list_problems(tmp_path)


def test_measures_each_in_each_dtype_once(run):
    status, rows, capsys = run()
    assert status == 0
    found = {(row["problem"], row["dtype"]): row for row in rows}
    assert len(rows) == len(found) == 10
    for row in rows:
        assert row["ms"].keys() == row["wall_ms"].keys() == {"eager", "fuse"}
    assert found["3_Gemm_Tanh_Sum", "fp32"]["fused"] == "whole"
    assert found["3_Gemm_Tanh_Sum", "fp32"]["sites"][0]["names"] == ["Linear", "tanh", "sum"]
    assert found["21_Matmul_BatchNorm", "bf16"]["fused"] == "whole"
    assert found["5_Matmul_CumSum", "fp32"]["fused"] == "in part"
    assert found["8_BMM_BatchNorm_Tanh_Scale", "fp32"]["fused"] == "whole"
    assert found["9_Gemm_Sum_Add", "fp32"]["fused"] == "in part"
    assert found["9_Gemm_Sum_Add", "fp32"]["sites"][0]["names"] == ["Linear", "sum"]
    assert "fp32: 5 of 5 right, 3 fused whole, 2 fused in part" in capsys.readouterr().out
    assert len(run("--dtypes", "fp32")[1]) == 10


def test_some_can_be_chosen(run):
    _, rows, _ = run("--problems", "21,5", "--dtypes", "bf16")
    assert [row["problem"] for row in rows] == ["5_Matmul_CumSum", "21_Matmul_BatchNorm"]


class Shifted(torch.nn.Module):
    """As another model, but for one element."""

    def __init__(self, model, shift):
        super().__init__()
        self.model, self.shift = model, shift

    def forward(self, x):
        y = self.model(x).clone()
        y[-1, -1] += self.shift
        return y

    def named_buffers(self):
        return self.model.named_buffers()


@pytest.mark.parametrize("word, shift", [("fp32", 4e-4), ("bf16", 0.5)])
def test_a_wrong_element_is_found(checkout, word, shift):
    (problem,) = [each for each in problems.list_problems(checkout) if each.number == 21]
    loaded = problems.load(problem, "cpu", measure.DTYPES[word])
    tolerance = measure.TOLERANCES[word]
    with torch.no_grad():
        measure.check(loaded, Shifted(measure._share(loaded.model), 0.0), tolerance)
        with pytest.raises(measure.Wrong, match="the result of trial 0"):
            measure.check(loaded, Shifted(measure._share(loaded.model), shift), tolerance)


def test_a_buffer_that_does_not_move_is_found(checkout):
    (problem,) = [each for each in problems.list_problems(checkout) if each.number == 21]
    loaded = problems.load(problem, "cpu", torch.float32)
    fused = measure._share(loaded.model)
    fused.bn.momentum = 0.0
    with torch.no_grad(), pytest.raises(measure.Wrong, match="running_mean"):
        measure.check(loaded, fused, 1e-4)


def test_what_fails_is_told_and_tried_again(run, monkeypatch):
    def fuse(model):
        raise RuntimeError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(measure, "cutlass_fused", types.SimpleNamespace(fuse=fuse))
        status, rows, capsys = run("--problems", "3", "--dtypes", "fp32")
    assert status == 1 and rows[0]["error"] == "RuntimeError: not today"
    assert "FAILED" in capsys.readouterr().out
    status, rows, _ = run("--problems", "3", "--dtypes", "fp32")
    assert status == 0 and len(rows) == 2 and "error" not in rows[1]
