"""Functions of rows, linked ahead of time: for products of one N."""

import pytest
from nvrtc import find_folders
from row_cases import ROW_CASES

from cutlass_fused import _library
from cutlass_fused.build_epilogues import calls
from cutlass_fused.build_epilogues.calls import Operand, record_calls
from cutlass_fused.programs.epilogue import Epilogue

SIZES = 64, 48, 32
BIAS = {"bias": Operand("N", None)}


def test_of_any_size():
    made = Epilogue(ROW_CASES["softmax"].function)
    with pytest.raises(RuntimeError, match="--shape must be given: it adds or compares along rows"):
        record_calls(made, BIAS, "bf16")


@pytest.mark.parametrize("name", ["softmax", "three"])
def test_linked(name, monkeypatch, tmp_path):
    """The kernel behind a product, and those of a backward pass: one of rows, and one of sums."""
    if not _library.is_loaded() or not find_folders():
        pytest.skip("no compiled library, or no libnvrtc")
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    made = Epilogue(ROW_CASES[name].function)
    recorded = record_calls(made, BIAS, "bf16", SIZES, ["bias"])
    assert [call.precision for call in recorded] == ["ieee", None, None]
    for call, kernel in zip(recorded, ("rows_48", "rows_48", "pointwise_8"), strict=True):
        (answer,) = calls.link(call, 90, SIZES)
        assert answer.split()[1:] == [kernel]
        assert answer.startswith("new") or call is recorded[2]  # which comes with the library
    assert recorded[2].out == "sum:bfloat16"
    assert len(list((tmp_path / "kernels").iterdir())) in (2, 3)
    with pytest.raises(RuntimeError, match="N must be 48, as the program says, got 64"):
        calls.link(recorded[0], 90, (64, 64, 32))


def test_composed():
    """Where the gradient is PyTorch's ops, nothing of it is linked."""
    made, operands = Epilogue(ROW_CASES["sum_of_operand"].function), {"w": Operand("N", None)}
    assert record_calls(made, operands, "bf16", SIZES, ["w"]) == []
    (call,) = record_calls(made, operands, "bf16", SIZES)
    assert "row_sum" in call.text and call.text.count("return") == 1
