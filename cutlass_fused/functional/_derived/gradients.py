"""The gradients of derived functions: a torch.autograd.Function, or the parts one by one."""

from typing import NamedTuple

from ...epilogues._description import Epilogue, Number

# Where a description has no gradient: its formula, by PyTorch, behind the product.
PARTS = """\
dtype = check_{op}({tensors}, precision, out_dtype, None)
        z = linear(x, weight, bias, precision=precision, out_dtype=compute_dtype(x))
        return {op}_formula({of_z}).to(dtype)"""

# In forward mode, which only PyTorch's ops and `multiply` have.
COMPOSED = """\
dtype = check_{op}({tensors}, precision, out_dtype, None)
        with no_autocast(x):
            z = compose_product(x, weight, bias, precision)
            return {op}_formula({of_z}).to(dtype)"""

_CLASS = """\
class {kind}(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward({matrices}, precision, out):
        split = find_split_under_grad(weight, precision)
        {forward}

    @staticmethod
    def setup_context(ctx, inputs, output):
        {inputs}, ctx.precision, _ = inputs
        {keep}
        ctx.save_for_backward(*keep_for_product(ctx, x, weight, bias), {saved})

    @staticmethod
    @differentiable
    def backward(ctx, saved, composed, grad_y, grad_z=None):
        if grad_y is None and grad_z is None:
            return (None,) * {count}
        x, weight, {saved} = saved
        {none}
        with no_autocast(grad_z if grad_y is None else grad_y):
            if grad_y is not None:
                {backward}
            grads = differentiate_product(ctx, grad_z, x, weight)
        return {results}
"""
# z in fp32, as inside the fused op: 16 bits would round the tail twice. Another op would name
# itself in its messages, and checks no operand. Never y.to(y.dtype), which is y itself:
# TorchDynamo returns every intermediate from a traced forward, and of an output that is there
# twice the gradient is lost, silently.
_FORWARD_WITH_Z = """\
dtype = check_{op}({tensors}, precision, None, out)
        z = linear_op(x, weight, bias, precision, None, split, name_out(x, compute_dtype(x)))
        y = {op}_formula({of_z})
        return (y if y.dtype == dtype else y.to(dtype)), z"""
_KEEP_Z = """\
z = output[1]
        keep_outputs(ctx, differentiable=z)"""


# In C++, which has the product alone: of what autocast has cast.
_NATIVE = """\
if native.is_served(x, weight, bias):
            return native.linear(x, weight, bias, precision, name_out(x, out_dtype))
        """


class GradientText(NamedTuple):
    text: str  # of the torch.autograd.Function
    call: str  # where the function uses it


def make_gradient(epilogue: Epilogue) -> GradientText:
    op, names, gradient = epilogue.op, epilogue.names, epilogue.gradient
    vectors = [operand.name for operand in epilogue.vectors]
    numbers = {operand.name for operand in epilogue.operands if isinstance(operand, Number)}
    values = {name: f"ctx.{name}" if name in numbers else name for name in names}
    kept = (["z"] if gradient.reads_z else []) + vectors
    arguments = ", ".join(["grad_y", *(["z"] if gradient.reads_z else []), *values.values()])
    parts = {
        "op": op,
        "kind": "_" + "".join(map(str.capitalize, op.split("_"))),  # profilers show it
        "matrices": ", ".join(["x", "weight", "bias", *names]),
        "tensors": ", ".join(["x", "weight", "bias", *vectors]),
        "of_z": ", ".join(["z", *names]),
    }
    forward = f"return {op}_op({parts['matrices']}, precision, None, split, out)"
    backward = [f"grad_z = add({op}_gradient.z({arguments}), grad_z)"]
    none, results = [], ["*grads"]
    for i, name in enumerate(names, start=3):
        if name not in gradient.operands:
            results.append("None")
            continue
        results.append(f"grad_{name}")
        none.append(f"grad_{name} = None")
        terms = f'{op}_gradient.operands["{name}"]({arguments})'
        backward.append(f"if ctx.needs_input_grad[{i}]:")
        backward.append(f"    grad_{name} = sum_to({terms}, {name})")
    text = _CLASS.format(
        **parts,
        forward=_FORWARD_WITH_Z.format(**parts) if gradient.reads_z else forward,
        inputs=", ".join(["x", "weight", "bias", *values.values()]),
        keep=_KEEP_Z if gradient.reads_z else "",
        saved="".join(f"{name}, " for name in kept),
        count=5 + len(names),
        none="\n        ".join(none),
        backward="\n                ".join(backward),
        results=", ".join([*results, "None", "None"]),
    )
    inputs = f"({parts['matrices']}, precision, name_out(x, out_dtype))"
    call = f'return apply("{op}", {parts["kind"]}, {inputs})'
    return GradientText(text, _NATIVE + call if op == "linear" else call)
