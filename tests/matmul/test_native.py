"""The kernels in C++: what they serve without those in Python, and where there are none.

That both give the same results is part of check_like_eager.
"""

import pytest
import torch
from python_process import run_python

import cutlass_fused
from cutlass_fused import _library
from cutlass_fused.matmul import _install, _native, _state

M, N, K, BATCHES = 40, 48, 64, 3

reason = _native.load()
has_library = not isinstance(reason, str)
native = pytest.mark.skipif(not has_library, reason=f"no kernels in C++: {reason}")


def make(*shape):
    return torch.randn(shape)


def test_the_library_is_there_where_that_of_the_ops_is():
    assert has_library or not _library.is_loaded(), reason


class Watched:
    """In place of what the kernels in Python read first."""

    def __init__(self):
        self.calls = 0

    def __getattr__(self, name):
        self.calls += name == "word"
        return getattr(_state, name)


@pytest.fixture
def python(monkeypatch):
    watched = Watched()
    monkeypatch.setattr(_install, "_state", watched)
    return watched


PLAIN = {
    "mm": lambda: torch.mm(make(M, K), make(K, N)),
    "mm of transposed matrices": lambda: torch.mm(make(K, M).t(), make(N, K).t()),
    "mm of odd strides": lambda: torch.mm(make(M, 2 * K)[:, ::2], make(1, N).expand(K, N)),
    "mm.out": lambda: torch.mm(make(M, K), make(K, N), out=make(N, M).t()),
    "addmm": lambda: torch.nn.functional.linear(make(M, K), make(N, K), make(N)),
    "addmm.out": lambda: torch.addmm(make(N), make(M, K), make(K, N), out=make(M, N)),
    "bmm": lambda: torch.bmm(make(BATCHES, M, K), make(BATCHES, K, N)),
    "bmm.out": lambda: torch.bmm(make(BATCHES, M, K), make(BATCHES, K, N), out=make(BATCHES, M, N)),
    "bmm of one": lambda: torch.bmm(make(1, K, M).mT, make(1, N, K).mT),
    "an activation": lambda: torch._addmm_activation(make(N), make(M, K), make(K, N)),
    "gelu": lambda: torch._addmm_activation(make(N), make(M, K), make(K, N), use_gelu=True),
    "a short K": lambda: torch.mm(make(M, 32), make(32, N)),
    "a short K of a batch": lambda: torch.bmm(make(BATCHES, M, 8), make(BATCHES, 8, N)),
    "alpha": lambda: torch.addmm(make(N), make(M, K), make(K, N), alpha=2),
    "beta": lambda: torch.addmm(make(N), make(M, K), make(K, N), beta=0),
    "a matrix to add": lambda: torch.addmm(make(M, N), make(M, K), make(K, N)),
    "a column to add": lambda: torch.addmm(make(M, 1), make(M, K), make(K, N), beta=0.5, alpha=-1),
    "a number to add": lambda: torch.addmm(make(1), make(M, K), make(K, N)),
    "addmm.out of a matrix": lambda: torch.addmm(
        make(M, N), make(M, K), make(K, N), out=make(M, N)
    ),
    "in place": lambda: make(M, N).addmm_(make(M, K), make(K, N), beta=2),
    "baddbmm": lambda: torch.baddbmm(make(N), make(BATCHES, M, K), make(BATCHES, K, N)),
    "baddbmm of one": lambda: torch.baddbmm(make(M, N), make(1, M, K), make(1, K, N), alpha=2),
    "baddbmm.out": lambda: torch.baddbmm(
        *(make(BATCHES, M, N), make(BATCHES, M, K), make(BATCHES, K, N)),
        out=make(BATCHES, M, N),
    ),
    "baddbmm in place": lambda: make(1, M, N).baddbmm_(make(1, M, K), make(1, K, N)),
    "backward": lambda: (make(M, K).requires_grad_() @ make(K, N)).sum().backward(),
    "float64": lambda: torch.mm(make(M, K).double(), make(K, N).double()),
    "bfloat16": lambda: torch.mm(make(M, K).bfloat16(), make(K, N).bfloat16()),
    "baddbmm of bfloat16": lambda: torch.baddbmm(
        *[x.bfloat16() for x in (make(N), make(BATCHES, M, K), make(BATCHES, K, N))]
    ),
    # Which a report counts, and nothing serves.
    "mv": lambda: torch.mv(make(M, K), make(K)),
}
ODD = {
    "alpha of 0": lambda: torch.addmm(make(N), make(M, K), make(K, N), alpha=0),
    "nothing to multiply": lambda: torch.mm(make(M, 0), make(0, N)),
    "no batch": lambda: torch.bmm(make(0, M, K), make(0, K, N)),
    "one matrix for all": lambda: torch.bmm(make(BATCHES, M, K), make(K, N).expand(BATCHES, K, N)),
    "an empty out": lambda: torch.mm(make(M, K), make(K, N), out=make(0)),
    "baddbmm of one matrix for all": lambda: torch.baddbmm(
        make(N), make(BATCHES, M, K), make(K, N).expand(BATCHES, K, N)
    ),
}


@native
@pytest.mark.parametrize("word", ["ieee", "tf32", None])
@pytest.mark.parametrize("case", PLAIN)
def test_plain_products_reach_no_python(case, word, python):
    with cutlass_fused.fp32_matmul(word):
        PLAIN[case]()
    assert not python.calls


@native
@pytest.mark.parametrize("case", ODD)
def test_odd_ones_reach_python_and_only_with_the_switch_on(case, python):
    ODD[case]()
    assert not python.calls
    with cutlass_fused.fp32_matmul("ieee"):
        ODD[case]()
    assert python.calls == 1


@native
def test_all_calls_beside_a_report_reach_python(python):
    with cutlass_fused.matmul_report() as report:
        for case in PLAIN.values():
            case()
    # All but mv are served ops, which read the switch.
    assert python.calls == report.rows.total() - 1 >= len(PLAIN)
    before = python.calls
    PLAIN["mm"]()
    assert python.calls == before


# Notes what the ops are called with, in a process of its own.
NOTE = """
import torch, cutlass_fused
from cutlass_fused.matmul import _install, _native, _state

def note(x, weight, *others):
    calls.append((x.shape, x.stride(), weight.shape, weight.stride(), x.data_ptr(),
                  weight.data_ptr(), *others))
    if fails:
        raise ZeroDivisionError
    return x @ weight.mT

def linear(x, weight, bias=None, precision="ieee"):
    return note(x, weight, bias, precision)

def bmm(x, weight, precision="ieee"):
    return note(x, weight, precision)

import warnings
warnings.simplefilter("ignore")
calls, fails = [], []
library = torch.library.Library("cutlass_fused", "FRAGMENT")
library.impl("linear", linear, "CPU", allow_override=True)
library.impl("bmm", bmm, "CPU", allow_override=True)
_install.install("CPU")
assert not isinstance(_native.load(), str)
make = torch.randn
"""


@native
def test_what_the_ops_are_called_with():
    run_python(
        NOTE
        + """
a, b, c = make(41, 64)[1:], make(64, 48), make(96)[::2]
three, other = make(3, 40, 64), make(3, 48, 64).mT
for word in ("ieee", "tf32"):
    with cutlass_fused.fp32_matmul(word):
        calls.clear()
        a @ b, torch.addmm(c, a, b), three @ other, three[1:2] @ other[2:]
    mm, addmm, bmm, one = calls
    views = (40, 64), (64, 1), (48, 64), (1, 48), a.data_ptr(), b.data_ptr()
    assert mm == (*views, None, word), mm
    *others, bias, precision = addmm
    assert others == [*views] and precision == word
    assert bias.data_ptr() == c.data_ptr() and bias.stride() == (2,)
    assert bmm == (three.shape, three.stride(), other.mT.shape, other.mT.stride(),
                   three.data_ptr(), other.data_ptr(), word), bmm
    assert one == ((40, 64), (64, 1), (48, 64), (64, 1),
                   three[1].data_ptr(), other[2].data_ptr(), None, word), one
"""
    )


@native
def test_a_short_k_is_served_where_pytorch_is_less_exact():
    """As by the kernel in Python."""
    run_python(
        NOTE
        + """
a, b = make(40, 32), make(32, 48)
for setting, word, served in (("tf32", "ieee", 1), ("tf32", "tf32", 0), ("ieee", "ieee", 0)):
    torch.backends.cuda.matmul.fp32_precision = setting
    with cutlass_fused.fp32_matmul(word):
        a @ b, torch.addmm(make(48), a, b), make(2, 40, 32) @ make(2, 32, 48)
        assert len(calls) == 3 * served, (setting, word, calls)
        with cutlass_fused.matmul_report() as report:
            a @ b
        assert ("served" in {outcome for *_, outcome in report.rows}) == served
    calls.clear()
"""
    )


@native
def test_an_exception_of_an_op_goes_to_the_caller_and_leaves_the_switch_working():
    run_python(
        NOTE
        + """
cutlass_fused.set_fp32_matmul("ieee")
a, b = make(40, 64), make(64, 48)
fails.append(True)
for _ in range(2):
    try:
        a @ b
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError
fails.clear()
a @ b
assert len(calls) == 3
"""
    )


@native
def test_loading_puts_no_kernel_anywhere():
    run_python(
        """
import torch
from cutlass_fused.matmul import _native
names = [f"aten::{name}" for name in ("mm", "addmm", "bmm", "mv")]
before = [str(torch.library.get_kernel(name, "CPU")) for name in names]
assert not isinstance(_native.load(), str)
assert [str(torch.library.get_kernel(name, "CPU")) for name in names] == before
"""
    )


@pytest.mark.parametrize("word", [None, "ieee"])
def test_a_process_that_ends_with_the_switch_on(word):
    """Kernels in Python go before those in C++ do."""
    said = run_python(
        f"""
import atexit
atexit.register(lambda: print(tuple(torch.addmm(make(48, 48), make(48, 64), make(64, 48)).shape)))
import torch, cutlass_fused
from cutlass_fused.matmul import _install
make = torch.randn
_install.install("CPU")
cutlass_fused.set_fp32_matmul({word!r})
atexit.register(lambda: print(tuple((make(48, 64) @ make(64, 48)).shape)))
"""
    )
    assert said == "(48, 48)\n(48, 48)\n"


SERVE = """
import torch, cutlass_fused
from cutlass_fused.matmul import _install, _native
_install.install("CPU")
with cutlass_fused.matmul_report() as report, cutlass_fused.fp32_matmul("ieee"):
    torch.mm(torch.randn(40, 64), torch.randn(64, 48))
(row,) = report.rows
assert row[2] == "served", row
with cutlass_fused.fp32_matmul("ieee"):
    torch.mm(torch.randn(40, 64), torch.randn(64, 48))
print(_native.load())
print(cutlass_fused.show_config())
"""


def test_without_the_library_python_serves(tmp_path):
    path = tmp_path / "libcutlass_fused.so"
    said = run_python(SERVE, CUTLASS_FUSED_LIBRARY=str(path))
    reason = f"there is no file {tmp_path / 'libcutlass_fused_switch.so'}"
    assert said.startswith(f"{reason}\n")
    assert f"\nfp32_matmul: kernels in Python: {reason}\n" in said


def test_what_is_no_such_library_is_passed_over(tmp_path):
    (tmp_path / "libcutlass_fused_switch.so").write_bytes(b"\x7fELF and then nonsense")
    said = run_python(SERVE, CUTLASS_FUSED_LIBRARY=str(tmp_path / "libcutlass_fused.so"))
    assert "libcutlass_fused_switch.so cannot be loaded: " in said.splitlines()[0]


@native
def test_another_version_of_torch_has_its_kernels_in_python():
    other = "import torch; torch.__version__ = '2.99.1+cu999'\n"
    version = _native.running_version()
    assert f"libcutlass_fused_switch.so was built for torch {version}\n" in run_python(
        other + SERVE
    )
    # The part behind the plus is that of a build, and counts for nothing.
    said = run_python(f"import torch; torch.__version__ = '{version}+cu999'\n" + SERVE)
    assert "\nfp32_matmul: kernels in C++\n" in said
