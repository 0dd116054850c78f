"""Calls that wait for the import of a module which this package does not import itself."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable


def when_imported(name: str, function: Callable) -> None:
    """function(module) for the module of this name: now, if it is imported already, else behind its
    import, before anybody has it."""
    if name in sys.modules:
        function(sys.modules[name])
    else:
        _finder.waiting.setdefault(name, []).append(function)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds each module that is waited for once, as it would be found without this."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable]] = {}

    def find_spec(self, name, path, target=None):
        functions = self.waiting.pop(name, None)
        if functions is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                for function in functions:
                    function(module)

            spec.loader.exec_module = exec_module
        return spec


_finder = _Finder()
