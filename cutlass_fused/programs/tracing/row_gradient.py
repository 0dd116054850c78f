"""The gradients of functions that add or compare along rows.

What PyTorch adds along rows is a sum of the gradient's program, and what it adds of rows a sum by
which gradients of operands end, as in every other.
"""

from .gradient import NOTHING, GradientTracer
from .layout import ROWS
from .row_rules import ROW_GRADIENT_RULES, ROW_RULES
from .rows import OfRows


class RowGradientTracer(OfRows, GradientTracer):
    row_rules = ROW_RULES | ROW_GRADIENT_RULES
    keeps_inputs = True

    def name_sum(self, result, x, dims=None, keepdim=False, **_):
        span = self.span(x, dims, may_be_of_rows=True)
        self.name(result, span.sum(self.find(x)), span.left(keepdim))
        if span.is_of_rows or id(x) in self._sums:
            self.mark_sum(result)

    def name_sum_of_rows(self, result, term, layout):
        """What is to be added of all rows."""
        self.name(result, term, layout)
        self.mark_sum(result)

    def take_operand(self, tensor, operand):
        super().take_operand(tensor, operand)
        self.take_layout(tensor)

    def take_gradient(self, tensor, argument, output):
        """That of groups of columns the program finds in all of their columns."""
        super().take_gradient(tensor, argument, output)
        self.take_layout(tensor)
        if output.width not in (1, self.columns):
            self._layouts[id(tensor)] = (ROWS, output.width)

    def choose_first(self, outputs, given):
        whole = (i for i, each in enumerate(given) if each and outputs[i].width == 1)
        return next(whole, NOTHING)

    def is_of(self, tensor, gradient, shape):
        has_rows = tensor.dim() == 2 and tensor.shape[0] == shape[0]
        is_zero = self.find(gradient) == 0.0
        return is_zero or (id(gradient) in self._sums) != has_rows

    def find_width(self, gradient):
        columns = gradient.shape[-1] if gradient.dim() else 1
        layout = self.layout(gradient)
        last = layout[-1] if layout else 0
        if columns not in (1, self.columns) or last not in (0, 1, ROWS):
            self.refuse("has a gradient of elements that lie elsewhere")
        return self.columns // columns
