"""The demo without a GPU: its models, what it measures, prints and hands to the drawing."""

import sys
import types

import pytest
import torch

from cutlass_fused import demo
from cutlass_fused.demo import command, measure, table

SMALL = measure.Size(6, 32)
FORM = {"model", "mode", "precision", "M", "N", "K", "variant", "ms", "ms_min", "ms_max", "rel_err"}


@pytest.mark.parametrize("precision", demo.PRECISIONS)
@pytest.mark.parametrize("name", demo.MODELS)
def test_rows_of_a_model(name, precision):
    before = torch.get_rng_state()
    rows = measure.measure(name, precision, SMALL, "cpu")
    assert [row["variant"] for row in rows] == ["ours", "eager"]
    for row in rows:
        assert set(row) == FORM
        assert (row["model"], row["precision"], row["M"], row["K"]) == (name, precision, 6, 32)
        assert row["mode"] == ("eval" if name == "12" else "train")
        assert 0 < row["ms_min"] <= row["ms"] <= row["ms_max"]
        largest = {"bf16": 2e-2, "fp16": 3e-3}.get(precision, 1e-5)
        assert 0 <= row["rel_err"] < largest
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"


@pytest.mark.parametrize("name", demo.MODELS)
def test_error_is_that_of_the_result(name, monkeypatch):
    """A fused module that is 1% off shows an error of 1%."""
    model = demo.MODELS[name]

    def fuse_wrongly(plain, precision):
        fused = model.fuse(plain, precision)
        return lambda x: 1.01 * fused(x)

    monkeypatch.setitem(demo.MODELS, name, model._replace(fuse=fuse_wrongly))
    ours, eager = measure.measure(name, "ieee", SMALL, "cpu")
    assert ours["rel_err"] == pytest.approx(0.01, rel=1e-3) and eager["rel_err"] < 1e-5


def test_setting_is_restored():
    before = torch.get_float32_matmul_precision()
    with demo.set_matmul_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def make_rows():
    times = {"ours": 0.5, "eager": 1.0, "compile": 0.75}
    return [
        {"precision": "bf16", "variant": name, "ms": ms, "rel_err": ms / 100}
        for name, ms in times.items()
    ]


def test_table():
    names = [row["variant"] for row in make_rows()]
    header, line = table.format_header(names), table.format_line(make_rows())
    assert len(header) == len(line)
    assert line.split() == ["bf16", "5.00e-03", "1.00e-02", *"0.500 1.000 0.750 2.00 1.50".split()]


@pytest.fixture
def small_cpu(monkeypatch):
    monkeypatch.setattr(command, "CPU_SIZE", SMALL)
    monkeypatch.setattr(command, "choose_device", lambda: "cpu")


def test_all_models_are_run(small_cpu, capsys):
    assert command.main([]) == 0
    printed = capsys.readouterr().out
    for model in demo.MODELS.values():
        assert printed.count(model.formula) == 1
    # The CPU has no TF32.
    for label in ("fp32 ieee", "bf16", "fp16"):
        assert printed.count(f"\n{label} ") == len(demo.MODELS)
    assert "fp32 tf32" not in printed and printed.count("in training") == 2


def test_one_model_in_one_precision(small_cpu, capsys):
    arguments = ["--model", "84", "--precision", "fp16", "--batch", "5"]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "M=5, K=N=32" in printed
    assert printed.count("\nfp16 ") == 1 and "\nbf16 " not in printed


@pytest.mark.parametrize("batch", ["1", "0", "-3", "x", "²"])
def test_batch_must_be_two_or_more(batch, capsys):
    with pytest.raises(SystemExit):
        command.main(["--batch", batch])
    assert "integer of at least 2" in capsys.readouterr().err


def test_plot_gets_the_rows(small_cpu, monkeypatch, tmp_path, capsys):
    drawn = []
    drawing = types.SimpleNamespace(draw_speedups=lambda rows, path: drawn.append((rows, path)))
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "cutlass_fused.comparison.drawing", drawing)
    path = tmp_path / "speed.png"
    assert command.main(["--plot", str(path)]) == 0
    ((rows, where),) = drawn
    assert where == path and str(path) in capsys.readouterr().out
    assert len(rows) == len(demo.MODELS) * 3 * 2 and all(set(row) == FORM for row in rows)


def test_plot_without_matplotlib_is_refused_before_the_measuring(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(command, "choose_device", lambda: pytest.fail("it went on"))
    with pytest.raises(SystemExit):
        command.main(["--plot", str(tmp_path / "speed.png")])
    assert "pip install matplotlib" in capsys.readouterr().err


def test_plot_into_a_missing_folder_is_refused_before_the_measuring(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", types.ModuleType("matplotlib"))
    with pytest.raises(SystemExit):
        command.main(["--plot", str(tmp_path / "missing" / "speed.png")])
    assert "no folder" in capsys.readouterr().err


def test_gpu_without_kernels_ends_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(command, "choose_device", lambda: "cuda")
    monkeypatch.setattr(command, "find_obstacle", lambda: "no library")
    assert command.main([]) == 1
    assert "cannot run on it: no library" in capsys.readouterr().out
