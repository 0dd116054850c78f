"""A driver that is too old for the library, or for torch, is told as such."""

import warnings

import pytest
import torch

import cutlass_fused
from cutlass_fused import _library, config

BUILD = {"cutlass": "4.2.0", "cuda": "13.0", "archs": ["8.0", "9.0a"], "ptx": "8.0"}
LINKS = {"nvrtc": None, "nvrtc_error": "none", "cache": None, "linked": {"folder": "/none"}}


@pytest.fixture
def one_gpu(monkeypatch):
    """torch sees an H100, and the library is loaded, wherever this runs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=0: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=0: "H100")
    monkeypatch.setattr(config, "read_build_info", lambda: BUILD)
    monkeypatch.setattr(config, "read_link_info", lambda: LINKS)


def show_gpus():
    return cutlass_fused.show_config().partition("\nGPU")[2]


@pytest.mark.parametrize(
    "driver, cuda, said",
    [
        ((12, 4), "13.0", "CUDA 12.4 at most, and this needs CUDA 13: install driver 580 or newer"),
        ((11, 8), "12.8", "CUDA 11.8 at most, and this needs CUDA 12: install driver 525 or newer"),
        # Within a major version an older driver runs what a newer nvcc has compiled.
        ((13, 0), "13.2", None),
        ((13, 2), "12.8", None),
        (None, "13.0", None),
    ],
)
def test_refusal(monkeypatch, driver, cuda, said):
    monkeypatch.setattr(config, "read_driver", lambda: driver)
    found = config.find_refusal((9, 0), BUILD | {"cuda": cuda})
    assert found is None if said is None else said in found


def test_show_config_explains_an_old_driver(monkeypatch, one_gpu):
    """torch of CUDA 12 sees the GPU, and the CUDA runtime of the library does not."""
    monkeypatch.setattr(config, "read_driver", lambda: (12, 4))
    said = show_gpus()
    assert " 0: H100, compute capability 9.0: no kernel runs: the driver runs CUDA 12.4" in said
    assert "nvcc of CUDA 12" in said and "float32 products" not in said


def test_show_config_survives_a_gpu_that_cannot_be_asked(monkeypatch, one_gpu):
    def refuse(*_):
        raise RuntimeError("find_engine: cannot query GPU cuda:0: broken\nand a trace")

    monkeypatch.setattr(config, "read_driver", lambda: (13, 0))
    monkeypatch.setattr(torch.ops.cutlass_fused, "find_engine", refuse)
    assert "float32 products: none, because find_engine: cannot query GPU cuda:0: broken\n" in (
        show_gpus()
    )


@pytest.mark.parametrize(
    "driver, said",
    [
        ((12, 4), ": none that torch can use: the driver runs CUDA 12.4 at most, and torch is"),
        ((13, 0), ": none found; CPU tensors"),
        (None, ": none found; CPU tensors"),
    ],
)
def test_show_config_says_why_torch_sees_no_gpu(monkeypatch, recwarn, driver, said):
    def is_available():
        warnings.warn("The NVIDIA driver on your system is too old", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(config, "read_driver", lambda: driver)
    assert show_gpus().startswith(said)
    assert not recwarn.list


def test_calls_explain_a_missing_driver():
    """The library's own words; a machine with a driver has none that is too old."""
    if not _library.is_loaded():
        pytest.skip(f"the library explains: {_library.load_error()}")
    if config.read_driver() is not None:
        pytest.skip("there is a driver here")
    with pytest.raises(RuntimeError, match=r"the driver must run CUDA \d+, .* got none; install"):
        torch.ops.cutlass_fused.find_engine(0, 1024, "ieee")
