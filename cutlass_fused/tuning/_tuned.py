"""The tiles that this process has found or read, by GPU and product."""

import threading

import torch

from .. import _library
from .._namespace import ops
from . import _cache

_lock = threading.RLock()
# Name of the GPU -> key of the product -> tile.
_tiles: dict[str, dict[str, str]] = {}
_read: set[str] = set()


def load_tuned_tiles() -> int:
    """Use the tiles that autotune found in earlier processes, without timing anything.

    Reads the cache of each GPU that this process sees; see cutlass_fused.autotune, which does the
    same when it is first entered. Nothing is read at import: a process that only runs models calls
    this once, before the first product. What is in use by then stays.

    Returns how many products have a tile, of all GPUs of this process; 0 without a GPU or without
    the library. A file that is damaged, or of another build of the library, is ignored with a
    RuntimeWarning.
    """
    if not can_tune():
        return 0
    with _lock:
        for gpu in set(_list_gpus()):
            _read.add(gpu)
            for key, tile in _cache.read_tiles(gpu).items():
                if not is_tuned(gpu, key):
                    _use_if_known(gpu, key, tile)
    return count_tuned()


def load_once() -> None:
    """Loads tuned tiles, unless those of all GPUs were read before."""
    if not _read.issuperset(_list_gpus()):
        load_tuned_tiles()


def can_tune() -> bool:
    """Whether there are kernels to choose from: the library, and a GPU."""
    return _library.is_loaded() and torch.cuda.is_available()


def is_tuned(gpu: str, key: str) -> bool:
    return key in _tiles.get(gpu, ())


def count_tuned() -> int:
    return sum(map(len, _tiles.values()))


def describe_tuning() -> str:
    """How many products this process has tiles for, and where these are kept."""
    return f"tuned products: {count_tuned()}, kept in {_cache.find_folder() or 'no folder'}"


def use(gpu: str, key: str, tile: str) -> None:
    """From now on, on all GPUs of this name."""
    with _lock:
        for device, name in enumerate(_list_gpus()):
            if name == gpu:
                ops.tune_tile(device, key, tile)
        _tiles.setdefault(gpu, {})[key] = tile


def _use_if_known(gpu: str, key: str, tile: str) -> None:
    try:
        use(gpu, key, tile)
    except RuntimeError:
        pass  # no tile of this build: to be timed again


def _list_gpus() -> list[str]:
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
