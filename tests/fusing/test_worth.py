"""What `fuse` leaves to PyTorch's ops on a GPU, as they are expected to take less time."""

from types import SimpleNamespace

import pytest
import torch

from cutlass_fused.fusing import worth

FP32, BF16, FP64 = torch.float32, torch.bfloat16, torch.float64
# (M, N, K), dtype, precision, is_bare, is_trained, is_of_rows; a word of the reason, None: fused.
CASES = {
    "ieee": ((16, 64, 64), FP32, "ieee", True, True, True, None),
    "float64": ((16, 64, 64), FP64, None, False, False, False, "float64"),
    "16 bits": ((16, 64, 64), BF16, None, False, False, False, None),
    "16 bits, alone": ((4096, 4096, 4096), BF16, None, True, False, False, "cuBLAS's"),
    "16 bits, a step": ((16, 64, 64), BF16, None, False, True, False, None),
    "16 bits, a small step of rows": ((1024, 768, 512), BF16, None, False, True, True, "host's"),
    "16 bits, a step of rows": ((4096, 1024, 512), BF16, None, False, True, True, None),
    "16 bits, rows in inference": ((1024, 768, 512), BF16, None, False, False, True, None),
    "16 bits, narrow": ((4096, 20, 512), BF16, None, False, False, False, "TMA"),
    "16 bits, odd": ((4096, 1024, 479), BF16, None, False, False, False, None),
    "tf32": ((16, 64, 64), FP32, "tf32", False, False, False, None),
    "tf32, alone": ((1024, 768, 512), FP32, "tf32", True, False, False, "cuBLAS's"),
    "tf32, large and alone": ((4096, 2048, 1024), FP32, "tf32", True, False, False, None),
    "tf32, a step": ((16, 64, 64), FP32, "tf32", False, True, False, None),
    "tf32, a small step of rows": ((1024, 768, 512), FP32, "tf32", False, True, True, "host's"),
    "tf32, a step of rows": ((4096, 1024, 512), FP32, "tf32", False, True, True, None),
    "tf32, a narrow step": ((133, 3, 12), FP32, "tf32", False, True, False, "in fp32"),
    "tf32, a narrow step, whole": ((133, 20, 12), FP32, "tf32", False, True, False, None),
    "tf32, narrow": ((133, 3, 12), FP32, "tf32", False, False, False, None),
    "tf32, an odd step": ((133, 1024, 479), FP32, "tf32", False, True, False, None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_left(case, monkeypatch):
    (m, n, k), dtype, *asked, word = case
    monkeypatch.setattr(worth, "_find_refusal", lambda device: None)
    x = SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=0), shape=(m, k))
    why = worth.find_loss(x, SimpleNamespace(shape=(n, k)), dtype, *asked)
    assert why is None if word is None else word in why


def test_a_gpu_that_is_refused_is_left(monkeypatch):
    monkeypatch.setattr(worth, "_find_refusal", lambda device: f"GPU {device} is too old")
    x = SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=3), shape=(16, 64))
    given = SimpleNamespace(shape=(64, 64)), FP32, "ieee", False, False, False
    assert worth.find_loss(x, *given) == "GPU 3 is too old"


def test_on_a_cpu_nothing_is_estimated():
    x, weight = torch.ones(2, 3), torch.ones(3, 3)
    assert worth.find_loss(x, weight, FP64, None, True, True, True) is None
