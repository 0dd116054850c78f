"""Faults that ops along rows invite, planted into the reference; the judge must reject each.

Those of every op with statistics, and of the softmax, stand in planted_statistics_faults.py.
"""

from __future__ import annotations

from calls import SOFTMAX
from planted_statistics_faults import Fault, change, replace, roll

from cutlass_fused.epilogues._description import Number
from cutlass_fused.row_ops import ROW_OPS


def double(name):
    return lambda call: call.change(**{name: 2 * getattr(call, name)}).refer_all()


def compute_along_columns(call):
    """Of a matrix without vectors, which would not fit."""
    turned = call.change(x=call.x.t()).refer()
    return replace(call, y=turned.t().contiguous())


def leave_out_last_column(call):
    """A sum that ends too early: the row as if its last element were 0, which is right itself."""
    x = call.x.clone()
    x[:, -1] = 0
    y = call.change(x=x).refer()
    y[:, -1] = call.refer()[:, -1]
    return replace(call, y=y)


def list_faults():
    for op, row_op in ROW_OPS.items():
        if not row_op.vectors:
            yield Fault("computed along the columns", compute_along_columns, (op,))
        if op != SOFTMAX:  # which has a fault of this kind of its own
            yield Fault("last element outside the sums", leave_out_last_column, (op,))
        for operand in row_op.operands:
            if isinstance(operand, Number):
                yield Fault(f"{operand.name} doubled", double(operand.name), (op,))
                continue
            yield Fault(f"{operand.name} one column off", roll(operand.name), (op,))
            if not operand.required:
                yield Fault(f"{operand.name} ignored", change(**{operand.name: None}), (op,))


ROW_FAULTS = tuple(list_faults())
