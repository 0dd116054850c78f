"""What the kernels are put over: PyTorch's, and those that others put there before or later.

Newer versions of PyTorch put a kernel over their own for bmm. Each test is a process of its own.
"""

from python_process import run_python

SET_UP = """
import torch, warnings
warnings.simplefilter("ignore")

def put_over(name):
    \"\"\"A kernel that notes its calls and calls what was there, as others do.\"\"\"
    original, calls = torch.library.get_kernel(f"aten::{name}", "CPU"), []

    def kernel(keyset, *args):
        calls.append(name)
        return original.call_boxed(keyset, *args)

    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "CPU", with_keyset=True, allow_override=True)
    libraries.append(library)
    return calls

libraries = []
a, b = torch.randn(3, 40, 64), torch.randn(3, 64, 48)
expected = torch.bmm(a, b)
"""
SWITCH_ON = """
import cutlass_fused
from cutlass_fused.matmul import _install
_install.install("CPU")
cutlass_fused.set_fp32_matmul("ieee")
"""


def test_a_kernel_that_was_there_before_gets_what_is_left():
    run_python(
        SET_UP
        + "calls = put_over('bmm')\n"
        + SWITCH_ON
        + """
short = a[..., :16] @ b[:, :16]
assert calls == ["bmm"], calls
torch.testing.assert_close(short, torch.einsum("bik,bkj->bij", a[..., :16], b[:, :16]))
a[:1] @ b[:1]
assert calls == ["bmm", "bmm"], calls  # that of einsum, and none of what is served
cutlass_fused.set_fp32_matmul(None)
assert torch.equal(torch.bmm(a, b), expected) and calls == ["bmm"] * 3
"""
    )


def test_a_kernel_that_is_put_there_later_may_call_ours():
    run_python(
        SET_UP
        + SWITCH_ON
        + "calls = put_over('bmm')\n"
        + """
with cutlass_fused.matmul_report() as report:
    y = a[:1] @ b[:1]
assert calls == ["bmm"]
assert {outcome for *_, outcome in report.rows} == {"served"}, report.rows
torch.testing.assert_close(y, expected[:1])
"""
    )


def test_an_op_that_pytorch_lacks_is_passed_over():
    run_python(
        """
from cutlass_fused.matmul import _install
_install.put_over("test", "CPU", {"no_such_op": None, "mm.dtype": None})
"""
    )


def test_off_and_on_again_while_another_thread_multiplies():
    """The kernels stay, so that no thread meets half of a change."""
    run_python(
        """
import threading, torch, cutlass_fused
from cutlass_fused.matmul import _install
_install.install("CPU")
x, y, done, errors = torch.randn(8, 48), torch.randn(48, 8), threading.Event(), []

def work():
    try:
        while not done.is_set():
            torch.testing.assert_close(x @ y, expected)
    except BaseException as error:
        errors.append(error)

expected = x @ y
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(300):
    with cutlass_fused.fp32_matmul("ieee"), cutlass_fused.matmul_report():
        pass
done.set()
for thread in threads:
    thread.join()
assert not errors, errors
"""
    )
