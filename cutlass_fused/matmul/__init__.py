"""PyTorch's own fp32 products by the kernels of this package, in a process that asks for it.

`_switch` turns it on and off, `_state` says what is on. `_install` puts a kernel over that which
PyTorch has for each op of `_served`, and calls PyTorch's for everything that `_left` names a reason
for. `_native` puts kernels in C++ over these. `_report` counts what is served and what is not.
"""

from ._compile import register_when_imported
from ._native import describe_kernels
from ._report import matmul_report
from ._switch import follow_environment, fp32_matmul, set_fp32_matmul

register_when_imported()
follow_environment()

__all__ = ["describe_kernels", "fp32_matmul", "matmul_report", "set_fp32_matmul"]
