"""What surrounds a fuzzed call: a stream, a capture, a forced tile, canaries around its result."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import random

import torch
from accuracy import Rejected
from fuzz_case import CanaryDied, Case, Results
from fuzz_sums import Guarded
from tiles import force_tile

WAIT = 3_000_000  # cycles
# PyTorch's allocator hands out whole units of this size.
UNIT = 512
CANARY = 0xA5
# From this size on blocks come from another pool, with blocks of at least that size.
SMALL_BLOCK = 2**20


@dataclasses.dataclass(frozen=True)
class Around:
    stream: bool = False
    graph: bool = False
    tile: str = ""
    canaries: bool = False

    def __str__(self) -> str:
        words = [name for name in ("stream", "graph", "canaries") if getattr(self, name)]
        return ", ".join([*words, *([f"tile {self.tile}"] if self.tile else [])]) or "alone"


def draw_around(rng: random.Random, case: Case) -> Around:
    """Nothing but the call where there is no GPU."""
    if case.device.type != "cuda":
        return Around()
    tile = rng.choice(case.tiles) if case.tiles and rng.random() < 0.3 else ""
    kind = rng.random()
    return Around(
        stream=kind < 0.15,
        graph=0.15 <= kind < 0.3,
        tile=tile,
        canaries=0.3 <= kind < 0.6 and case.form is not None,
    )


def run(case: Case, around: Around) -> tuple[Results, bool]:
    """The results of the call, and whether there were canaries around the first of them. Raises
    CanaryDied where one, or a tensor of the case or what lies around it, was overwritten."""
    before = {name: _copy_storage(tensor) for name, tensor in case.tensors.items()}
    has_canaries = False
    with force_tile(around.tile) if around.tile else contextlib.nullcontext():
        if around.stream:
            results = _run_late(case)
        elif around.graph:
            results = _run_captured(case)
        elif around.canaries and case.form is not None:
            results, has_canaries = _run_between_canaries(case)
        else:
            _poison(case)
            results = case.run()
    guarded = results.pop("guarded", None)
    if guarded is not None:
        guarded.check()
        has_canaries = True
    for name, tensor in case.tensors.items():
        if not torch.equal(_copy_storage(tensor), before[name]):
            raise CanaryDied(f"{name}, or what lies around it, was overwritten")
    return results, has_canaries


def _copy_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Its whole memory, as bytes."""
    tensor = tensor.detach()
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return torch.as_strided(tensor, (count,), (1,), 0).view(torch.uint8).clone()


def _poison(case: Case) -> None:
    """Leaves NaN in the blocks that results of this form get."""
    if case.form is not None:
        shape, dtype = case.form
        garbage = [torch.full(shape, torch.nan, dtype=dtype, device=case.device) for _ in range(2)]
        del garbage


def _run_late(case: Case) -> Results:
    """x holds NaN until shortly before the call, and right behind it: a kernel on any other stream
    would read that."""
    x = case.tensors["x"].detach()
    memory = torch.as_strided(x, (x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)
    kept = memory.clone()
    memory.fill_(torch.nan)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(WAIT)
        memory.copy_(kept)
        results = case.run()
        memory.fill_(torch.nan)
        memory.copy_(kept)
    stream.synchronize()
    return results


def _run_captured(case: Case) -> Results:
    """A replay's results, whose bits are those of the call itself."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        expected = {name: tensor for name, tensor in case.run().items() if name != "guarded"}
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with _no_collection(), torch.cuda.graph(graph):
        results = case.run()
    for _ in range(2):
        for name, tensor in results.items():
            if name != "guarded" and tensor.is_floating_point():
                tensor.fill_(torch.nan)
        graph.replay()
    torch.cuda.synchronize()
    found = {
        name: each if isinstance(each, Guarded) else each.clone() for name, each in results.items()
    }
    for name, tensor in expected.items():
        if not torch.equal(_as_bytes(found[name]), _as_bytes(tensor)):
            raise Rejected(f"{name}: a replay's bits are not those of the call that was captured")
    return found


@contextlib.contextmanager
def _no_collection():
    """An earlier case's graph that Python frees during a capture would invalidate it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    # contiguous() leaves a dimension of one element the stride that it has.
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    return dense.reshape(-1).view(torch.uint8)


# ---- canaries in PyTorch's own pool ----


def _round_up(size: int) -> int:
    return -(-max(size, 1) // UNIT) * UNIT


def _run_between_canaries(case: Case) -> tuple[Results, bool]:
    """The first result lies in a hole between two blocks that are full of canaries, and so is the
    hole: its last bytes, of which the result has none, too. A call that takes other memory first
    may leave the hole to that: then there are no canaries. What it takes beside its results may
    have lain in the hole before the first of them: then the hole's last bytes say nothing."""
    shape, dtype = case.form
    size = _round_up(torch.Size(shape).numel() * dtype.itemsize)
    guard = UNIT * 8 if size <= SMALL_BLOCK // 2 else 2 * SMALL_BLOCK
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):

        def fill(count):
            return torch.full((count,), CANARY, dtype=torch.uint8, device=case.device)

        whole = fill(2 * guard + size)
        del whole
        front, hole, back = fill(guard), fill(size), fill(guard)
        begin = hole.data_ptr()
        is_one = front.data_ptr() + guard == begin and begin + size == back.data_ptr()
        del hole
        before = _count_allocations()
        results = case.run()
        is_alone = _count_allocations() - before <= len(results)
    torch.cuda.synchronize()
    y = next(iter(results.values()))
    if not is_one or y.data_ptr() != begin:
        return results, False
    for place, block in (("in front of", front), ("behind", back)):
        if not bool((block == CANARY).all()):
            raise CanaryDied(f"memory {place} the block of the result was overwritten")
    written = y.numel() * y.itemsize
    slack = read_memory(begin + written, size - written) if is_alone else b""
    if any(byte != CANARY for byte in slack):
        raise CanaryDied("memory right behind the result was overwritten")
    copies = {name: tensor.clone() for name, tensor in results.items()}
    del results, y, front, back  # before the pool that they lie in
    return copies, True


def _count_allocations() -> int:
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def read_memory(address: int, count: int) -> bytes:
    """Bytes of the GPU's memory, no matter whose; by the driver, since no tensor has them."""
    buffer = (ctypes.c_ubyte * max(count, 1))()
    if count:
        driver = ctypes.CDLL("libcuda.so.1")
        copy = driver.cuMemcpyDtoH_v2
        copy.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
        if code := copy(buffer, address, count):
            raise RuntimeError(f"cuMemcpyDtoH: error {code}")
    return bytes(buffer[:count])
