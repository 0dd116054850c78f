"""GPUs for tests of autotune: the ops and the timing that it is made of, with nothing behind."""

import contextlib
import json

from cutlass_fused.timing import Timing
from cutlass_fused.tuning import _autotune, _fastest, _tuned

NAMES = ("GPU A", "GPU B", "GPU A")
TILES = ("slow", "slower", "fast", "faster", "last")
CHOICE = "slow"
MILLISECONDS = {"slow": 1.0, "slower": 1.5, "fast": 0.9, "faster": 0.8, "last": 3.0}


class FakeGpus:
    """What the C++ side keeps: the tile of each product, and the products that were recorded."""

    def __init__(self):
        self.tuned: dict[tuple[int, str], str] = {}
        self.recorded: dict[tuple[int, str], dict] = {}
        self.records = False
        self.milliseconds = dict(MILLISECONDS)
        self.log = []  # each product that was timed, and the rounds
        self.while_timing = lambda key: None
        self.errors = {}  # by key, raised when it is timed

    # ---- the ops ----

    def record_products(self, enabled):
        self.records = enabled
        recorded, self.recorded = self.recorded, {}
        return json.dumps(list(recorded.values()))

    def tune_tile(self, device, key, tile):
        if tile and tile not in TILES:
            raise RuntimeError("tune_tile: tile must be one of")
        self.tuned[device, key] = tile
        if not tile:
            del self.tuned[device, key]

    # ---- what a model does ----

    def call(self, key="k1", device=0):
        """An op with a product; returns the tile that serves it."""
        if self.records and (device, key) not in self.tuned:
            product = {"device": device, "key": key, "m": 1, "n": 2, "k": 3, "dtype": "bfloat16"}
            product |= {"precision": "ieee", "out_dtype": "float32"}
            self.recorded[device, key] = product | {"choice": CHOICE, "tiles": list(TILES)}
        return self.tuned.get((device, key), CHOICE)

    # ---- the timing ----

    def time_in_turns(self, variants, device, rounds):
        assert device == "cuda"
        times = {}
        for name, run in variants.items():
            product, tile = run()
            assert name in (tile, f"{tile} again")
            times[name] = Timing(self.milliseconds.get(name, self.milliseconds[tile]), 0.0, 9.0)
        self.log.append((product.key, rounds, sorted(variants)))
        self.while_timing(product.key)
        if product.key in self.errors:
            raise self.errors[product.key]
        return times

    def timed(self):
        """The products that were timed, in order."""
        return list(dict.fromkeys(key for key, _, _ in self.log))


@contextlib.contextmanager
def install(monkeypatch):
    """Puts FakeGpus in the place of the ops, as in a process that has not tuned anything."""
    gpus = FakeGpus()
    for module in (_autotune, _tuned, _fastest):
        monkeypatch.setattr(module, "ops", gpus)
    monkeypatch.setattr(_tuned, "_tiles", {})
    monkeypatch.setattr(_tuned, "_read", set())
    monkeypatch.setattr(_tuned, "can_tune", lambda: True)
    monkeypatch.setattr(_tuned, "_list_gpus", lambda: list(NAMES))
    cuda = _autotune.torch.cuda
    monkeypatch.setattr(cuda, "get_device_name", NAMES.__getitem__)
    monkeypatch.setattr(cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(_fastest, "time_in_turns", gpus.time_in_turns)
    monkeypatch.setattr(
        _fastest,
        "_make_run",
        lambda product: lambda: (product, gpus.tuned[product.device, product.key]),
    )
    yield gpus
    assert not gpus.records, "recording goes on behind the last context"
