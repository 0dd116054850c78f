"""Derivatives beyond a gradient: where they are asked for, and what a backward pass does there."""

import functools

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad

_VMAP_MODE = torch._C._dispatch_key_parse("VmapMode")


def is_forward_mode() -> bool:
    """Whether forward-mode derivatives are taken: the ops have none, and PyTorch would take them
    for zero, silently. A function then runs as PyTorch's ops behind `multiply`, which have."""
    if forward_ad._current_level < 0:
        return False
    if torch.compiler.is_dynamo_compiling():
        # It would see the op alone.
        torch._dynamo.graph_break("cutlass_fused in forward mode runs eagerly")
    return not torch.compiler.is_compiling()


def is_mapped() -> bool:
    """Whether torch.func.vmap is around: of ops that write to their arguments it makes no slices,
    so that training then runs as in forward mode."""
    if not torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        return False
    stack = _functorch.get_interpreter_stack() or ()
    return any(each.key() == _functorch.TransformType.Vmap for each in stack)


def is_batched() -> bool:
    """Whether a backward pass gets a batch of gradients (is_grads_batched), which it is mapped
    over."""
    return torch._C._dispatch_tls_is_dispatch_key_included(_VMAP_MODE)


def asks_outside(tensor: Tensor, below: bool = False) -> bool:
    """Whether a tensor within torch.func's transforms wants a gradient in one of them, or outside;
    `below`: in one around the innermost.

    torch.func.vmap hides that from its slices, and an inner torch.func.grad, of something else,
    from what an outer one asks. The gradient of an op alone would be lost, with no more than a
    warning. A torch.autograd.Function gives it, or without a rule for vmap is refused.
    """
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if tensor.requires_grad and not below:
            return True
        tensor, below = _functorch.get_unwrapped(tensor), False
    return tensor.requires_grad


def differentiable(backward):
    """backward(ctx, saved, composed, grad_y, *others) as the backward of a
    torch.autograd.Function, called without the others, behind its results, where those are zeros.

    Nearly always nobody asks for derivatives of these gradients, and PyTorch's kernels compute them
    without a record. Where somebody does, `composed` is True, and each step must be an op that
    PyTorch differentiates, or `multiply`. Such steps read inputs and outputs of the Function alone:
    by the gradients of an output, as z, a second backward pass comes back to the Function. So it
    recomputes nothing, and has all orders.
    """

    @functools.wraps(backward)
    def run(ctx, *grads):
        saved = ctx.saved_tensors  # once: checkpoints refuse a second look
        if torch.compiler.is_compiling():
            if may_differentiate_in_graph():
                # PyTorch traces the backward of a Function without a record.
                with torch.enable_grad():
                    return backward(ctx, saved, True, *grads)
            # A graph is differentiated once: the gradients of the outputs behind y are zeros. Those
            # of an eager call that compiled autograd reads may be others.
            grads = grads[: ctx.results] if len(grads) > 1 and ctx.is_compiled else grads
            with torch.no_grad():
                return backward(ctx, saved, False, *grads)
        if _is_differentiated(*grads, *saved):
            return backward(ctx, saved, True, *grads)
        if not torch.is_grad_enabled():  # as nearly always
            return backward(ctx, saved, False, *grads)
        with torch.no_grad():
            return backward(ctx, saved, False, *grads)

    return run


def find_needed(ctx, tensors: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which gradients the backward pass that runs reads, of the inputs of a Function that want one:
    forces ask for those of x and leave those of the weights, which ctx.needs_input_grad counts. For
    passes that are differentiated again: to ask about a leaf whose gradient torch.autograd.grad
    gives takes 40 us, for an exception.

    tensors: which inputs are tensors."""
    needed = ctx.needs_input_grad
    if torch.compiler.is_compiling():
        return needed
    edges = iter(ctx.next_functions)
    return tuple(
        _is_read(next(edges)[0]) and need if is_tensor else need
        for need, is_tensor in zip(needed, tensors, strict=True)
    )


def _is_read(node) -> bool:
    if node is None:
        return False
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # of a leaf that torch.autograd.grad was given, or of a compiled pass
        return True


def may_differentiate_in_graph() -> bool:
    """Whether what is compiled may hold a torch.autograd.grad, of which a graph has gradients."""
    return getattr(torch._dynamo.config, "trace_autograd_ops", False)


def keep_outputs(
    ctx, *constants: Tensor, differentiable: Tensor | None = None, results: int = 1
) -> None:
    """For setup_context: the outputs behind y, or behind so many results, of which no zeros come in
    place of gradients. Only `differentiable` has derivatives, unless the graph is compiled, to be
    differentiated once."""
    ctx.set_materialize_grads(False)
    ctx.is_compiled, ctx.results = torch.compiler.is_compiling(), results
    if differentiable is not None and ctx.is_compiled and not may_differentiate_in_graph():
        constants = (*constants, differentiable)
    ctx.mark_non_differentiable(*constants)


def add(grad: Tensor | None, more: Tensor | None) -> Tensor | None:
    """The sum of two gradients, either of which may be missing."""
    if grad is None or more is None:
        return more if grad is None else grad
    return grad + more


def _is_differentiated(*read: Tensor | None) -> bool:
    if forward_ad._current_level >= 0:
        return True
    if not torch.is_grad_enabled():
        return False
    if torch._C._are_functorch_transforms_active():
        # Within the innermost transform all is recorded. Who reads that is around it.
        return any(tensor is not None and asks_outside(tensor, below=True) for tensor in read)
    return any(tensor is not None and tensor.requires_grad for tensor in read)
