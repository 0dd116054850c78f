"""How a fused forward comes into a module, and into each copy of it.

`copy.copy` hands on what an instance holds. A forward that stands there would go on to compute with
the attributes of the first module. So a fused module says itself how it is copied: `copy.copy`,
`copy.deepcopy` and pickle ask the instance for `__reduce_ex__`.
"""

from torch import nn

from .forward import FusedForward

_REDUCE = "__reduce_ex__"


def install_forward(module: nn.Module, forward: FusedForward) -> None:
    held = module.__dict__
    held["forward"] = forward
    if _is_copied_as_objects_are(type(module)):
        held[_REDUCE] = Copies(forward)


def remove_forward(module: nn.Module) -> None:
    """If it has one of ours."""
    held = module.__dict__
    if isinstance(held.get("forward"), FusedForward):
        held.pop("forward").close()
    if isinstance(held.get(_REDUCE), Copies):
        del held[_REDUCE]


class Copies:
    """The `__reduce_ex__` of an instance."""

    def __init__(self, forward: FusedForward) -> None:
        self._forward = forward

    def __call__(self, protocol: int) -> tuple:
        forward = self._forward
        make, given, *state = object.__reduce_ex__(forward.module, protocol)
        is_ours = isinstance(forward.module.__dict__.get("forward"), FusedForward)
        if state and isinstance(state[0], dict):
            ours = ("forward", _REDUCE) if is_ours else (_REDUCE,)
            state[0] = {name: value for name, value in state[0].items() if name not in ours}
        if not is_ours:  # somebody has put another in its place
            return make, given, *state
        return make_copy, (make, given, type(forward), forward.arguments), *state


def make_copy(make, given: tuple, kind: type[FusedForward], arguments: tuple) -> nn.Module:
    """A module without its state, but for a forward of its own."""
    module = make(*given)
    install_forward(module, kind(module, *arguments))
    return module


def _is_copied_as_objects_are(kind: type) -> bool:
    return (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and not hasattr(kind, "__copy__")
    )
