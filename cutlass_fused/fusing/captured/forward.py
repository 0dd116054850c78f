"""The forward of a model whose calls are CUDA graphs."""

from torch import nn

from ..forward import FusedForward, is_followed
from .replays import Replays


class CapturedForward(FusedForward):
    """As FusedForward, of the model that `fuse` was given, whether or not it has sites of its own.
    `most`: graphs."""

    def __init__(self, module: nn.Module, path: str, precision: str | None, most: int) -> None:
        super().__init__(module, path, precision)
        self.replays = Replays(module, self.call_fused, most)

    def call_fused(self, *args, **kwargs):
        return self._run(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        if is_followed():
            return self._call_plain(*args, **kwargs)
        return self.replays(args, kwargs)

    @property
    def arguments(self) -> tuple:
        return *super().arguments, self.replays.most

    def close(self) -> None:
        self.replays.forget()
