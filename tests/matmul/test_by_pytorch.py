"""What the library is asked of a product that PyTorch may compute as well."""

import pytest
import torch
from accuracy import matmul_settings
from switched import count_under

from cutlass_fused.matmul import _batches, _by_pytorch, _left, _served

M, N, K, DEVICE = 40, 48, 64, 3


class OnGpu:
    """A tensor that says that it is on a GPU."""

    is_cuda = True

    def __init__(self, tensor):
        self._tensor = tensor

    def __getattr__(self, name):
        return getattr(self._tensor, name)

    def get_device(self):
        return DEVICE


@pytest.fixture
def asked(monkeypatch):
    """The products that were asked of, each as a dictionary; of all the library says yes."""
    asked = []

    def function(pointer):
        product = pointer._obj
        fields = {name: getattr(product, name) for name, _ in product._fields_}
        asked.append({k: list(v) if k.endswith("strides") else v for k, v in fields.items()})
        return True

    monkeypatch.setattr(_by_pytorch, "find_function", lambda: function)
    return asked


def test_what_it_is_told(asked):
    """Each stride of another size, so that none is taken for another."""
    a, b = torch.randn(3, 2 * M, 3 * K)[:, ::2, ::3], torch.randn(3, 5 * K, 7 * N)[:, ::5, ::7]
    setting = torch.backends.cuda.matmul.fp32_precision == "tf32"
    word = "tf32" if setting else "ieee"
    assert _by_pytorch.is_by_pytorch(word, OnGpu(a), OnGpu(b))
    assert _by_pytorch.is_by_pytorch(word, OnGpu(a[1]), OnGpu(b[2]))
    common = {"m": M, "n": N, "k": K, "device": DEVICE, "in_tf32": setting}
    strides = a.stride(), (b.stride(0), b.stride(2), b.stride(1))
    assert asked == [
        common
        | {"batch": 3, "x": a.data_ptr(), "weight": b.data_ptr()}
        | {"x_strides": [*strides[0]], "weight_strides": [*strides[1]]},
        common
        | {"batch": 1, "x": a[1].data_ptr(), "weight": b[2].data_ptr()}
        | {"x_strides": [0, *strides[0][1:]], "weight_strides": [0, *strides[1][1:]]},
    ]


@pytest.mark.parametrize("setting", ["ieee", "tf32"])
@pytest.mark.parametrize("word", ["ieee", "tf32"])
def test_only_where_pytorchs_setting_is_the_word(word, setting, asked):
    a, b = OnGpu(torch.randn(M, K)), OnGpu(torch.randn(K, N))
    with matmul_settings(setting):
        assert _by_pytorch.is_by_pytorch(word, a, b) == (word == setting)
    assert [product["in_tf32"] for product in asked] == [word == "tf32"] * (word == setting)
    with _by_pytorch.never():
        assert not _by_pytorch.is_by_pytorch(word, a, b)


def test_what_is_left_where_cublas_is_faster(monkeypatch):
    """Products alone and beside a bias. Other sums, and one matrix for all of a batch, are ours."""
    for module in (_served, _batches):
        monkeypatch.setattr(module, "is_by_pytorch", lambda word, a, b: True)
    a, b, c, row = torch.randn(3, M, K), torch.randn(3, K, N), torch.randn(M, N), torch.randn(N)
    calls = [
        (lambda: torch.mm(a[0], b[0]), _left.CUBLAS),
        (lambda: torch.addmm(row, a[0], b[0]), _left.CUBLAS),
        (lambda: torch.addmm(c, a[0], b[0], beta=0), _left.CUBLAS),
        (lambda: torch.addmm(c, a[0], b[0]), "served"),
        (lambda: torch.addmm(row, a[0], b[0], alpha=2), "served"),
        (lambda: torch.bmm(a, b), _left.CUBLAS),
        (lambda: torch.bmm(a, b[:1].expand(3, K, N)), "served"),
        (lambda: torch.baddbmm(row, a, b), "served"),
    ]
    for call, outcome in calls:
        with count_under() as report:
            call()
        assert [found for *_, found in report.rows] == [outcome]
