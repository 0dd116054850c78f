"""One description per op along rows: its formula, operands, gradient and CUDA launch.

Such an op stands alone, without a product. Everything that Python knows of one comes from its
description: the schema, the CPU kernel and the fake, the checks, the function with its gradient,
how DTensors are sharded, what tests call it with and how they judge it. A file of this folder that
defines ROW_OP is found by itself.
"""

import importlib
import pkgutil

from ._description import RowOp


def _find() -> dict[str, RowOp]:
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in sorted(names)]
    return {module.ROW_OP.op: module.ROW_OP for module in modules}


# By the names of the ops.
ROW_OPS = _find()
