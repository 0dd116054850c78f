"""python -m cutlass_fused.explain without a GPU, and what it makes of times that are given."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from cutlass_fused.explain import command, measure
from cutlass_fused.explain.roofline import Roofline
from cutlass_fused.timing import Timing

MODELS = """
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(1))
    return model, torch.randn(5, 8)

class Models:
    alone = staticmethod(lambda: make()[0])

def no_model():
    return 3

def no_inputs():
    return make()[0], "x"

number = 3
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "explained.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("explained", None)


def test_prints_the_report(models, capsys):
    assert command.main(["explained:make", "--verify", "--precision", "ieee"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Sequential: 2 sites fused, 0 left\n")
    assert "error / PyTorch's" in out and "linear_epilogue, gelu" in out
    if not torch.cuda.is_available():
        assert "Times need a GPU: no GPU was found" in out


@pytest.mark.parametrize("option", [[], ["--train"]])
def test_model_without_inputs(models, option, capsys):
    assert command.main(["explained:Models.alone", *option]) == 0
    assert "2 sites fused" in capsys.readouterr().out


WRONG = {
    "explained": "MODULE:FACTORY must be two names with a colon between, got 'explained'",
    ":make": "MODULE:FACTORY must be two names",
    ".explained:make": "MODULE:FACTORY must be two names",
    "torch.nn:Linear": "is called without arguments: missing a required argument: 'in_features'",
    "nowhere:make": "there is no module 'nowhere'",
    "explained.nowhere:make": "there is no module 'explained.nowhere'",
    "explained:nothing": "explained has no nothing",
    "explained:number": "explained:number must be a function, got int",
    "explained:no_model": "must return a torch.nn.Module, or a pair of one and its inputs, got int",
    "explained:no_inputs": "the inputs of explained:no_inputs must be a tensor",
}


@pytest.mark.parametrize("place", WRONG)
def test_wrong_factories(place, models, capsys):
    with pytest.raises(SystemExit) as error:
        command.main([place])
    assert error.value.code == 2
    assert WRONG[place] in capsys.readouterr().err


def test_verify_needs_inputs(models, capsys):
    with pytest.raises(SystemExit):
        command.main(["explained:Models.alone", "--verify"])
    assert "--verify needs inputs" in capsys.readouterr().err


def test_as_a_command(models):
    run = [sys.executable, "-m", "cutlass_fused.explain", "explained:make"]
    path = os.pathsep.join(each for each in sys.path if each)
    found = subprocess.run(
        run, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=True
    )
    assert "2 sites fused" in found.stdout


def test_measures(monkeypatch, capsys):
    """With times that are given, on a CPU: what is printed of them."""
    monkeypatch.setattr(nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")

    def time(variants, device, **_):
        for each in variants.values():
            each()
        return {name: Timing(*[{"ours": 2.0, "eager": 6.0}[name]] * 3) for name in variants}

    monkeypatch.setattr(measure, "time_in_turns", time)
    monkeypatch.setattr(measure, "measure_roofline", lambda: Roofline(1e6, 1e9))
    monkeypatch.setattr(measure, "_find_kernel", lambda run: "kernel<128>")
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(5, 8)
    for is_trained in (False, True):
        text = measure.measure(model, x, "ieee", is_trained, False)
        assert "2 ms, PyTorch 6 ms, 3 times as long" in text
        # 2 * 5 * 8 * 16 operations, of which each is three in 16 bits.
        assert f"{1280 * 3 / 1e6 / 2e-3:.0%}" in text
        assert text.count("kernel<128>") == 2
    assert "timing site 2 of 2, 2 ..." in capsys.readouterr().err


def test_roofline():
    roofline = Roofline(flops=1e12, bandwidth=1e9)
    assert roofline.find_ms(1e12, 1.0, torch.bfloat16, "ieee") == 1e3
    assert roofline.find_ms(1e12, 1.0, torch.float32, "ieee") == 3e3
    assert roofline.find_ms(1e12, 1.0, torch.float32, "tf32") == 1e3
    assert roofline.find_ms(1.0, 1e9, torch.float32, "tf32") == 1e3
