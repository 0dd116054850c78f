"""Python text of the nodes of a graph, and the functions that are made of it."""

import builtins
import itertools
import keyword
import linecache
import math
import operator
from collections.abc import Callable, Iterable

import torch
from torch.fx import Node

_LITERALS = (bool, int, str, bytes, type(None))
_COUNT = itertools.count()
_SIGNS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.matmul: "@",
    operator.pow: "**",
}


class Text:
    """Lines of a function. `names`: of nodes that have a value there. `reserved`: names of its
    arguments that are a user's, of which no other is to be one."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.reserved = frozenset(reserved)
        self.lines: list[str] = []
        self.names: dict[Node, str] = {}
        self.globals: dict = {"__builtins__": builtins, "__name__": __name__}
        self._bound: dict[int, str] = {}

    def name(self, kind: str, index: int) -> str:
        name = f"{kind}{index}"
        while name in self.reserved:
            name = f"{name}_"
        return name

    def bind(self, value) -> str:
        """How the text names a value of Python, a builtin too."""
        if type(value) in _LITERALS or (type(value) is float and math.isfinite(value)):
            return repr(value)
        if id(value) not in self._bound:
            name = self.name("c", len(self._bound))
            self._bound[id(value)], self.globals[name] = name, value
        return self._bound[id(value)]

    def write(self, argument) -> str:
        if isinstance(argument, Node):
            return self.names[argument]
        if type(argument) is tuple:
            return f"({''.join(f'{self.write(each)}, ' for each in argument)})"
        if hasattr(argument, "_fields"):  # a named tuple
            return self.call(self.bind(type(argument)), argument, {})
        if isinstance(argument, list):
            return f"[{', '.join(map(self.write, argument))}]"
        if isinstance(argument, slice):
            parts = argument.start, argument.stop, argument.step
            return f"{self.bind(slice)}({', '.join(map(self.write, parts))})"
        if isinstance(argument, dict):
            pairs = (f"{self.bind(key)}: {self.write(each)}" for key, each in argument.items())
            return f"{{{', '.join(pairs)}}}"
        return self.bind(argument)

    def call(self, function: str, args, kwargs) -> str:
        given = [self.write(each) for each in args]
        given += [
            f"{name}={self.write(each)}" if _is_name(name) else f"**{self.write({name: each})}"
            for name, each in kwargs.items()
        ]
        return f"{function}({', '.join(given)})"

    def compute(self, node: Node) -> str:
        """The expression of a node that calls something, or reads an attribute."""
        if node.op == "call_module":
            return self.call(self.bind(node.meta["module"]), node.args, node.kwargs)
        if node.op == "call_method":
            receiver, *args = node.args
            return self.call(f"{self.write(receiver)}.{node.target}", args, node.kwargs)
        if node.op == "get_attr":
            return self.read(node.meta["owner"], node.meta["place"], node.meta["name"])
        if node.target in _SIGNS and not node.kwargs:
            first, second = map(self.write, node.args)
            # In parentheses: -2.0 ** x is -(2.0 ** x).
            return f"(({first}) {_SIGNS[node.target]} {second})"
        return self.call(self.bind(node.target), node.args, node.kwargs)

    def read(self, module: torch.nn.Module, place: dict, name: str) -> str:
        """An attribute, as it is when the text runs: wrappers may move it to another place."""
        held, owner = self.bind(place), self.bind(module)
        # A ParameterList calls them 0, 1, ...
        attribute = f"{owner}.{name}"
        if not _is_name(name):
            attribute = f"{self.bind(getattr)}({owner}, {name!r})"
        return f"{held}[{name!r}] if {name!r} in {held} else {attribute}"

    def make(self, header: str, what: str) -> Callable:
        """The function of this header and of the lines."""
        assert header.partition("(")[0] not in self.globals
        text = "\n    ".join([f"def {header}:", *self.lines]) + "\n"
        file = f"<{what} {next(_COUNT)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.globals)
        return self.globals[header.partition("(")[0]]


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def list_nodes(argument) -> Iterable[Node]:
    """Those within the arguments of a node, each as often as it is there."""
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for each in argument:
            yield from list_nodes(each)
    elif isinstance(argument, dict):
        for each in argument.values():
            yield from list_nodes(each)
    elif isinstance(argument, slice):
        yield from list_nodes((argument.start, argument.stop, argument.step))
