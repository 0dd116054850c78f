"""One description per epilogue: its formula, operands, gradient and CUDA functor.

An epilogue is what follows a product in the same kernel. Everything that Python knows of one comes
from its description: the schema of its op, the CPU kernel and the fake, the checks, the function
with its gradient, how DTensors are sharded, and what tests call it with. A file of this folder that
defines EPILOGUE is found by itself.
"""

import importlib
import pkgutil

from ._description import Epilogue


def _find() -> dict[str, Epilogue]:
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in sorted(names)]
    return {module.EPILOGUE.op: module.EPILOGUE for module in modules}


# Name of the op -> description.
EPILOGUES = _find()
