"""The loop that times on a GPU, run on a model of one: a queue behind a host that may be slower."""

import types

import pytest

from cutlass_fused import timing

FLUSH, LAUNCH = 60e-6, 4e-6
CLOCK = 1.98e9


class Gpu:
    """Takes the place of torch and of time: what is queued begins once it is queued and what was
    queued before is done."""

    int8 = "int8"

    def __init__(self):
        self.host = self.done = 0.0
        self.log, self.waits = [], []
        self.cuda = types.SimpleNamespace(
            Event=lambda enable_timing: Event(self),
            _sleep=self.sleep,
            synchronize=self.synchronize,
        )

    def queue(self, what, seconds, host=LAUNCH):
        self.host += host
        self.done = max(self.done, self.host) + seconds
        self.log.append(what)
        return self.done

    def sleep(self, cycles):
        self.waits.append(cycles)
        self.queue("wait", cycles / CLOCK)

    def synchronize(self):
        self.host = max(self.host, self.done)
        self.log.append("synchronize")

    def empty(self, size, dtype, device):
        assert (size, device) == (timing.FLUSH_BYTES, "cuda")
        return types.SimpleNamespace(zero_=lambda: self.queue("flush", FLUSH))

    def perf_counter(self):
        return self.host


class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.seconds = self.gpu.queue("event", 0.0)

    def elapsed_time(self, end):
        assert self.gpu.log[-1] == "synchronize"
        return 1e3 * (end.seconds - self.seconds)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(timing, "torch", gpu)
    monkeypatch.setattr(timing, "time", gpu)
    return gpu


# Seconds of the GPU and of the host, which needs longer for torch.compile's batch norm than the GPU
# for the flush.
RUNS = {"ours": (5e-6, 25e-6), "compile": (8e-6, 85e-6)}


def make_variants(gpu, runs):
    return {
        name: lambda name=name, gpu_time=gpu_time, host=host: gpu.queue(name, gpu_time, host)
        for name, (gpu_time, host) in runs.items()
    }


def test_flush_and_wait_lie_in_front_of_what_is_timed(gpu):
    timing.time_in_turns(make_variants(gpu, RUNS), "cuda", rounds=4, warm_up_rounds=2)
    *warm_up, rounds = [block.split() for block in " ".join(gpu.log).split("synchronize")[:-1]]
    assert len(warm_up) == 1
    for ran, count in ((warm_up[0], 2), (rounds, 4)):
        expected = [name for order in timing.shuffle_rounds(RUNS, count) for name in order]
        assert ran == " ".join(f"flush wait event {name} event" for name in expected).split()


def test_a_host_that_is_slower_than_the_gpu_is_not_timed(gpu, monkeypatch):
    variants = make_variants(gpu, RUNS)
    for name, times in timing.time_in_turns(variants, "cuda", rounds=20).items():
        assert times == pytest.approx([1e3 * RUNS[name][0]] * 3)
    # Without the wait the model shows the fault: more than twice the 8 us.
    monkeypatch.setattr(timing, "count_wait_cycles", lambda *_: 0)
    slow = {"compile": variants["compile"]}
    assert timing.time_in_turns(slow, "cuda", rounds=20)["compile"].median > 2 * 8e-3


def test_wait_covers_calls_that_take_the_host_longer_than_the_median(gpu):
    """Each third call takes the host half as long again."""
    calls = iter(range(1000))
    variants = {"a": lambda: gpu.queue("a", 5e-6, 85e-6 * (1.5 if next(calls) % 3 == 0 else 1))}
    times = timing.time_in_turns(variants, "cuda", rounds=20)["a"]
    assert times == pytest.approx([5e-3] * 3)


def test_wait_is_the_same_for_all_and_none_while_the_host_is_measured(gpu):
    timing.time_in_turns(make_variants(gpu, RUNS), "cuda", rounds=4, warm_up_rounds=2)
    warm_up, waits = gpu.waits[: 2 * len(RUNS)], gpu.waits[2 * len(RUNS) :]
    assert set(warm_up) == {0} and len(set(waits)) == 1
    # The call, and the events around it.
    host = RUNS["compile"][1] + 2 * LAUNCH
    assert waits[0] == pytest.approx(
        timing.WAIT_PER_HOST * host * timing.CYCLES_PER_SECOND, rel=1e-3
    )


def test_cycles_of_the_wait():
    most = int(timing.MOST_WAIT_SECONDS * timing.CYCLES_PER_SECOND)
    count = timing.count_wait_cycles
    # A call that waits for the GPU, or a host that was never measured.
    assert count({"a": [1.0], "b": [1e-6]}) == count({"a": [], "b": []}) == most
    # What happens once, such as a compilation, does not count.
    assert count({"a": [0.5, 1e-4, 1e-4]}) == pytest.approx(1e-4 * 2 * timing.CYCLES_PER_SECOND)


def test_rounds_without_a_warm_up(gpu):
    timing.time_in_turns(make_variants(gpu, RUNS), "cuda", rounds=2, warm_up_rounds=0)
    assert len(gpu.waits) == 2 * len(RUNS) and min(gpu.waits) > 0
