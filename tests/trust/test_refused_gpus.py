"""GPUs that no kernel runs on: what is said of each, without one."""

import pytest
import torch

import cutlass_fused
from cutlass_fused import comparison, config

BUILD = {"archs": ["8.0", "9.0a"], "ptx": "8.0"}


@pytest.mark.parametrize(
    ("capability", "change", "told"),
    [
        ((7, 5), {}, "below 8.0, the oldest"),
        ((3, 7), {"archs": ["3.7"]}, "below 8.0, the oldest"),
        ((10, 0), {"ptx": None}, "rebuild with CUTLASS_FUSED_ARCHS naming 10.0"),
        ((8, 0), {"archs": ["9.0a"], "ptx": None}, "code for 9.0a only"),
        ((8, 0), {"archs": ["9.0a"], "ptx": "9.0"}, "code for 9.0a, PTX of 9.0 only"),
        ((8, 0), {"archs": ["8.6"], "ptx": None}, "code for 8.6 only"),
        ((8, 0), {}, None),
        ((8, 9), {"ptx": None}, None),
        ((9, 0), {"ptx": None}, None),
        ((12, 0), {}, None),
    ],
)
def test_reasons(capability, change, told):
    found = config.find_refusal(capability, BUILD | change)
    assert found is None if told is None else told in found


def test_without_a_library():
    assert config.find_refusal((9, 0), None) == "the library is not loaded"


@pytest.fixture
def old_gpu(monkeypatch):
    """PyTorch finds a GPU that the kernels are not written for, and one that they run on."""
    capabilities = [(7, 5), (9, 0)]
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(cuda, "get_device_capability", lambda index=0: capabilities[index])
    monkeypatch.setattr(cuda, "get_device_name", lambda index=0: f"GPU of {index}")
    monkeypatch.setattr(config, "_describe_engines", lambda index: "none")
    monkeypatch.setattr(config, "read_build_info", lambda: None)


def test_both_are_named(old_gpu):
    said = cutlass_fused.show_config()
    assert "GPU 0: GPU of 0, compute capability 7.5: no kernel runs: its compute" in said
    assert "GPU 1: GPU of 1, compute capability 9.0: no kernel runs: the library is not" in said


def test_demo_and_benches_tell_why(old_gpu):
    assert comparison.find_obstacle() is not None
