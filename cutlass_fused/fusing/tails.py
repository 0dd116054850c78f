"""What follows a batch norm in training: a program on elements in memory, in one kernel."""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx import Graph, Node

from .._library import ops
from .recorded.chains import find_name, is_batch_norm, is_view
from .recorded.functions import Functions, make_functions_behind
from .recorded.products import Product
from .recorded.regions import Growth, Region
from .sites import Decision, describe_autocast, imitate, write_block

_apply_program = ops.apply_program.default
# Elements. A kernel of PyTorch for each op takes the host some 5 us, a call of ours as long as a
# few of them: from here on each kernel that is saved reads and writes 8 MB less.
_LEAST = 1024 * 1024
# With gradients the host takes some 50 us longer for a function in Python: fusing/norms.py.
_LEAST_TRAINED = 4096 * 4096
_MOST = 256  # decisions that are kept
_PLAIN = (Tensor, torch.nn.Parameter)


class Tail:
    """t(v, *operands), v being the result of a batch norm: a chain of elements, or of rows.

    It has what `verify` and a report ask of a Site.
    """

    def __init__(self, where: str, region: Region, functions: Functions, obstacle: str) -> None:
        from ..programs.traced import TracedFunction

        self.where, self.region, self.obstacle = f"{where}, behind a batch norm", region, obstacle
        self.functions, self.plain = functions, functions.plain
        self.names = [find_name(node) for node in region.nodes]
        self.last: Decision | None = None
        self._traced = TracedFunction("_".join(self.names), functions.epilogue)
        self._held = [(m, m.__dict__[place], name) for m, place, name in functions.held]
        modules = [n.meta["module"] for n in region.nodes if n.op == "call_module"]
        self._is_blocked, self._decisions = write_block(modules), {}

    def __call__(self, v, *given):
        taken = self.take(v, given)
        if taken is None:
            return self.plain(v, *given)
        operands, is_recorded = taken[3], torch.is_grad_enabled()
        key = tuple(
            (each.shape, each.dtype, each.device, is_recorded and each.requires_grad)
            for each in (v, *operands)
        )
        decision = self._decisions.get(key)
        if decision is None:
            return self._decide(key, v, given, operands)
        return self.plain(v, *given) if decision.why is not None else decision.direct(v, operands)

    def take(self, v, given) -> tuple | None:
        """(None, None, None, operands), as a Site says it; None where PyTorch's ops are to run."""
        held = [p[n] if n in p else getattr(module, n) for module, p, n in self._held]
        operands = [*given, *held]
        if any(type(each) not in _PLAIN for each in (v, *operands)) or self._is_blocked():
            return None
        if forward_ad._current_level >= 0 or describe_autocast(v) is not None:
            return None
        return None, None, None, operands

    def _decide(self, key, v, given, operands):
        if v.is_cuda and torch.cuda.is_current_stream_capturing():
            return self.plain(v, *given)  # as a Site does
        decision, y = self._find_decision(v, operands), None
        if decision.why is None:
            try:
                y = decision.direct(v, operands)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                decision = Decision(str(error).strip().splitlines()[0])
        if len(self._decisions) >= _MOST:
            self._decisions.clear()
        self._decisions[key] = self.last = decision
        return self.plain(v, *given) if decision.why is not None else y

    def _find_decision(self, v: Tensor, operands: list[Tensor]) -> Decision:
        is_trained = torch.is_grad_enabled() and any(e.requires_grad for e in (v, *operands))
        if v.dim() != 2 or v.layout is not torch.strided:
            return Decision("the result of the batch norm is no matrix")
        if v.is_cuda and v.numel() < (_LEAST_TRAINED if is_trained else _LEAST):
            return Decision("behind the batch norm a small matrix takes longer by the host's time")
        try:
            run, out = self._find_run(v, operands, is_trained)
            expected = self._expect(v, operands)
        except (RuntimeError, TypeError, ValueError) as error:
            return Decision(str(error).strip().splitlines()[0])
        if run is None:
            return Decision("the gradient is none of elements")
        if expected.dtype != out or expected.numel() == 0:
            return Decision(f"its result is of {expected.dtype}, or empty")
        shape = expected.shape

        def direct(v, operands):
            y = run(v, operands)
            return y if y.shape == shape else y.reshape(shape)

        return Decision(None, out, direct)

    def _find_run(self, v: Tensor, operands: list[Tensor], is_trained: bool):
        """A function of v and operands, and the dtype of what it gives."""
        from ..programs.differentiable import apply, find_derivative
        from ..programs.operands import check_operand, find_kind

        name, n = self._traced.name, v.shape[1]
        for word, each in zip(self.functions.names, operands, strict=True):
            check_operand(name, word, each, v)
        kinds = tuple(
            (find_kind(name, word, each, v, n), min(each.dim(), 2))
            for word, each in zip(self.functions.names, operands, strict=True)
        )
        found = self._traced.find(tuple(zip(self.functions.names, kinds, strict=True)), n)
        text, out = found.program.text, _name(v)
        if found.is_tuple:
            raise ValueError("it gives several tensors")
        if not is_trained:
            return lambda v, operands: _apply_program(v, operands, text, out)[0], v.dtype
        needed = tuple(each.requires_grad for each in (v, *operands))
        dtypes = tuple(map(_name, (v, *operands)))
        if found.program.columns or not find_derivative(text, out, kinds, needed, (True,), dtypes):
            return None, v.dtype
        return lambda v, operands: apply(text, out, kinds, v, operands)[0], v.dtype

    def _expect(self, v: Tensor, operands: list[Tensor]) -> Tensor:
        """What PyTorch's ops give, without computing."""
        from torch._subclasses import FakeTensorMode

        with torch.no_grad(), FakeTensorMode():
            return self.functions.epilogue(*map(imitate, (v, *operands)))


def find_tail(graph: Graph, norm: Node, claimed: set[Node], where: str) -> Tail | None:
    """Behind the node of a batch norm in training, or of one that counts as it. None where one
    kernel of PyTorch does all."""
    growth = Growth(graph, Product((norm,), norm.args[0]), claimed)
    for region in growth.list_regions():
        if sum(not is_view(node) for node in region.nodes) < 2:
            return None
        if any(map(is_batch_norm, region.nodes)):
            continue
        return Tail(where, region, make_functions_behind(region), growth.obstacle)
    return None


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
