"""Functions that add or compare along rows of a known length, while they are traced."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..program import MOST_COLUMNS
from .builder import Known
from .layout import ROWS, Layout, join, relayout
from .row_rules import ROW_RULES
from .trace import Output, Refusal, Tracer, check_tensors, describe

_aten = torch.ops.aten
_EXPAND = _aten.expand.default
_LIFT = _aten.lift_fresh.default


class Span:
    """Elements that an op adds or compares: of each row, or of groups of columns of it.

    width: columns of a group. count: elements of it, which may each stand for several columns.
    """

    def __init__(self, tracer: "OfRows", shape: Sequence[int], layout: Layout, dims: set[int]):
        self.builder = tracer.builder
        self._layout, self.dims = layout, dims
        self.is_of_rows = any(layout[dim] == ROWS for dim in dims)
        steps = [(layout[dim], shape[dim]) for dim in dims if layout[dim] > 0]
        kept = [step for dim, step in enumerate(layout) if step > 0 and dim not in dims]
        self.width = max((step * size for step, size in steps), default=1)
        self._step = min((step for step, _ in steps), default=1)  # columns of an element
        if kept and min(kept) < self.width:
            tracer.refuse("adds or compares columns that do not lie side by side")
        self._repeats = math.prod(shape[dim] for dim in dims if layout[dim] == 0)
        self._apart = math.prod(size for _, size in steps)
        self.count = self._repeats * self._apart

    def sum(self, x: Known) -> Known:
        found = self.builder.add("row_sum", x, float(self.width))
        return self.builder.add("mul", found, self._repeats * self._apart / self.width)

    def mean(self, x: Known) -> Known:
        return self.builder.add("div", self.sum(x), float(self.count))

    def maximum(self, x: Known) -> Known:
        return self.builder.add("row_max", x, float(self.width))

    def minimum(self, x: Known) -> Known:
        return self.builder.add("row_min", x, float(self.width))

    @property
    def is_whole(self) -> bool:
        """Whether each column of a group belongs to one element."""
        return self._repeats == 1 and self._apart * self._step == self.width

    def first(self, truth: Known) -> Known:
        return self._find_place("row_first", truth)

    def last(self, truth: Known) -> Known:
        return self._find_place("row_last", truth)

    def _find_place(self, word: str, truth: Known) -> Known:
        found = self.builder.add(word, truth, float(self.width))
        if self._step == 1:
            return found
        # One column of an element has it; all of them stand for it.
        one = self.builder.add("where", found, 1.0, 0.0)
        return self.builder.add("ne", self.builder.add("row_max", one, float(self._step)), 0.0)

    def left(self, keepdim: bool) -> Layout:
        """The layout of what an op gives."""
        return tuple(
            0 if dim in self.dims else step
            for dim, step in enumerate(self._layout)
            if keepdim or dim not in self.dims
        )


class Places(NamedTuple):
    """What indices stand for: where x, of this shape and layout, is first what a span merges."""

    span: Span
    x: Known
    merged: Known
    shape: torch.Size
    layout: Layout


class OfRows(Tracer):
    """A Tracer that knows where the elements of tensors lie. What of it is overridden here comes in
    front of that of other tracers."""

    row_rules = ROW_RULES

    def __init__(self, name: str, columns: int) -> None:
        super().__init__(name)
        self.columns = columns
        self._layouts: dict[int, Layout] = {}
        self._refused: dict[int, Tensor] = {}
        self._places: dict[int, Places] = {}
        if not 1 <= columns <= MOST_COLUMNS:
            raise Refusal(f"{name}: rows must have 1 to {MOST_COLUMNS} columns, got {columns}")

    def layout(self, tensor: Tensor) -> Layout:
        return self._layouts.get(id(tensor), (0,) * tensor.dim())

    def take_layout(self, tensor: Tensor) -> None:
        """Of what a function is given."""
        steps = {self.columns: 1, 1: 0}
        self._layouts[id(tensor)] = tuple(steps.get(size, ROWS) for size in tensor.shape)

    def name(self, result: Tensor, value: Known, layout: Layout) -> None:
        # Of truths PyTorch makes a whole number, which is one of fp32 too.
        is_count = result.dtype == torch.int64
        self.stand_for(result, value if is_count else self._convert(value, result))
        self._layouts[id(result)] = layout

    def name_all(self, results, values, layouts) -> None:
        for each in zip(results, values, layouts, strict=True):
            self.name(*each)

    def refuse_later(self, result: Tensor) -> None:
        self._refused[id(result)] = result

    def keep_places(self, indices: Tensor, span: Span, x: Tensor, merged: Known) -> None:
        self.refuse_later(indices)
        self._places[id(indices)] = Places(span, self.find(x), merged, x.shape, self.layout(x))

    def find_places(self, indices: Tensor) -> Places | None:
        return self._places.get(id(indices))

    def span(self, x: Tensor, dims, may_be_of_rows: bool = False) -> Span:
        dims = [dims] if isinstance(dims, int) else dims
        dims = set(range(x.dim())) if not dims else {dim % max(x.dim(), 1) for dim in dims}
        dims = dims if x.dim() else set()
        found = Span(self, x.shape, self.layout(x), dims)
        if found.is_of_rows and not may_be_of_rows:
            self.refuse("adds or compares rows, where a program does so along each row alone")
        return found

    def last(self, x: Tensor, count: int) -> Span:
        return self.span(x, range(x.dim() - count, x.dim()))

    def groups(self, x: Tensor, groups: int) -> Span:
        """Of (M, C, ...): of so many channels side by side, and all behind them."""
        if self.layout(x)[:1] != (ROWS,):
            self.refuse("normalizes groups of something else than columns")
        shape = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
        return self._regroup(x, shape)

    def windows(self, x: Tensor, width: int) -> Span:
        return self._regroup(x, (*x.shape[:-1], x.shape[-1] // width, width))

    def _regroup(self, x: Tensor, shape: tuple[int, ...]) -> Span:
        layout = relayout(x.shape, self.layout(x), shape)
        if layout is None:
            self.refuse("adds or compares columns that do not lie side by side")
        return Span(self, shape, layout, {len(shape) - 1})

    def join_all(self, *tensors: Tensor | None) -> Layout:
        """Of what is computed of these, element by element."""
        given = [each for each in tensors if each is not None]
        shape = torch.broadcast_shapes(*(each.shape for each in given))
        layout = join([(each.shape, self.layout(each)) for each in given], shape)
        if layout is None:
            self.refuse("computes with elements of different places")
        return layout

    def find_outputs(self, name, outputs, shape):
        check_tensors(name, outputs)
        return tuple(self._find_output(name, output, *shape) for output in outputs)

    def _find_output(self, name: str, output: Tensor, m: int, n: int) -> Output:
        sizes = tuple(output.shape)
        columns = sizes[1] if len(sizes) == 2 else 1
        is_shape = len(sizes) in (1, 2) and sizes[0] == m and n % columns == 0
        if not is_shape or output.dtype != torch.float32:
            must = "(M, N), (M, N / width), (M, 1) or (M,) of float32"
            raise Refusal(f"{name}: it must return {must}, got {describe(output)}")
        width, layout = n // columns, self.layout(output)
        steps = (width if columns > 1 else 0, 0)
        if layout[0] not in (ROWS, 0) or (len(sizes) == 2 and layout[1] not in steps):
            raise Refusal(f"{name}: it must return elements at their places, got others")
        return Output(width, len(sizes) == 1)

    def _find_meaning(self, tensor):
        if id(tensor) in self._refused:
            self.refuse("reads where an element lies, which no word of programs tells")
        return super()._find_meaning(tensor)

    def _run(self, op, args, kwargs):
        rule = self.row_rules.get(op)
        if rule is not None:
            result = op(*args, **kwargs)
            rule(self, result, *args, **kwargs)
            return result
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        result = super()._run(op, args, kwargs)
        layout = self.join_all(*tensors) if tensors else ()
        for each in result if isinstance(result, (tuple, list)) else (result,):
            shape = each.shape
            of_each = layout if len(shape) == len(layout) else (0,) * len(shape)
            self._layouts[id(each)] = of_each
        return result

    def _name_view(self, op, tensor, result):
        if op is _LIFT:
            super()._name_view(op, tensor, result)
            return
        layout = self.layout(tensor)
        if op is _EXPAND:
            sizes = (1,) * (result.dim() - tensor.dim()) + tuple(tensor.shape)
            layout = (0,) * (result.dim() - tensor.dim()) + layout
            pairs = zip(sizes, result.shape, layout, strict=True)
            layout = tuple(step if old == new else 0 for old, new, step in pairs)
        else:
            layout = relayout(tensor.shape, layout, result.shape)
        if layout is None:
            self.refuse_move(op, tensor, result)
        if id(tensor) in self._refused:
            self.refuse_later(result)
            if id(tensor) in self._places:
                self._places[id(result)] = self._places[id(tensor)]
            return
        self.stand_for(result, self._find_meaning(tensor))
        self._layouts[id(result)] = layout

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(op, types, args, kwargs)
        is_one = isinstance(result, Tensor) and bool(args) and isinstance(args[0], Tensor)
        if is_one and id(result) not in self._layouts and result.shape == args[0].shape:
            # A conversion, or what autograd keeps.
            if id(args[0]) in self._layouts and not self._is_constant(result):
                self._layouts[id(result)] = self.layout(args[0])
        return result

    def _is_constant(self, tensor: Tensor) -> bool:
        known = self._known.get(id(tensor))
        return known is not None and isinstance(known[1], Tensor)


class RowTracer(OfRows):
    """Of a function."""

    def take_input(self, tensor, argument):
        super().take_input(tensor, argument)
        self.take_layout(tensor)
