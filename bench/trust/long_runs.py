"""What must hold for as long as a process runs: bits, memory, caches. On a GPU or on the CPU."""

import contextlib
import gc
import os
import random
import subprocess
import threading
import time
from typing import NamedTuple

import torch

from cutlass_fused import epilogue, functional, nn
from cutlass_fused.weights import splits

MIB = 2**20


class Sample(NamedTuple):
    """What a process holds when it has nothing left to do.

    seconds: since the run began. gpu, reserved: bytes of PyTorch's on the GPU, of tensors and in
    all. device: bytes of the GPU that find_device_bytes finds. host: resident bytes of the process.
    splits: weights whose parts are kept.
    """

    seconds: float
    steps: int
    gpu: int
    reserved: int
    device: int
    host: int
    splits: int


def read_host_bytes() -> int:
    """The resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def find_device_bytes() -> int:
    """What this process has of the GPU, as the driver tells; else what anybody has of it."""
    command = [
        "nvidia-smi",
        "--query-compute-apps=pid,used_memory",
        "--format=csv,noheader,nounits",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        rows = [line.split(",") for line in done.stdout.splitlines()]
        own = [int(mib) for pid, mib in rows if int(pid) == os.getpid()]
        if own:
            return sum(own) * MIB
    free, total = torch.cuda.mem_get_info()
    return total - free


def take_sample(device: str, begin: float, steps: int) -> Sample:
    gc.collect()
    gpu = reserved = on_device = 0
    if device == "cuda":
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()  # one for each thread and stream that had a product
        torch.cuda.empty_cache()
        gpu, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        on_device = find_device_bytes()
    kept = len(splits._cache)
    spent = round(time.monotonic() - begin, 1)
    return Sample(spent, steps, gpu, reserved, on_device, read_host_bytes(), kept)


# ---- modules that are shared ----


@epilogue
def gated(acc, bias, gate):
    return torch.nn.functional.silu(acc + bias) * gate


class Shared(torch.nn.Module):
    """Modules of every kind behind each other, and an epilogue."""

    def __init__(self, width: int, precision: str) -> None:
        super().__init__()
        options = {"precision": precision}
        self.first = nn.LinearScaleLeakyReLU(width, width, 2.0, 0.1, **options)
        self.second = nn.LinearScaleBatchNorm1d(width, width, (width,), **options)
        self.third = nn.LinearBatchNorm1dScaleSoftmax(width, width, **options)
        self.fourth = nn.Linear(width, width, **options)
        self.gate = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        z = self.second(self.first(x))
        y = self.third(z)
        last = self.fourth
        options = {} if x.dtype.itemsize == 2 else {"precision": last.precision}
        return y + gated(z, last.weight, bias=last.bias, gate=self.gate, **options)


def make_shared(device: str, width: int, precision: str) -> Shared:
    torch.manual_seed(0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    word = precision if dtype == torch.float32 else "ieee"
    return Shared(width, word).to(device, dtype).eval()


def run_threads(device: str, threads: int, seconds: float, width: int = 256, rows: int = 200):
    """Threads on streams of their own share modules, whose weights change between rounds: every
    result has the bits that a lone thread gets."""
    modules = [make_shared(device, width, precision) for precision in ("ieee", "tf32", "bf16")]
    inputs = [torch.randn(rows - 7 * i, width, device=device) for i in range(threads)]
    begin, rounds, calls = time.monotonic(), 0, 0
    wrong: list[str] = []

    def call_alone(module, x):
        with torch.no_grad():
            return module(x.to(module.gate.dtype))

    while rounds < 2 or time.monotonic() < begin + seconds:
        with torch.no_grad():
            for module in modules:
                module.first.gemm.weight.mul_(-1.01 if rounds % 2 else 0.99)
        expected = [[call_alone(module, x) for module in modules] for x in inputs]
        if device == "cuda":
            torch.cuda.synchronize()
        splits.invalidate()  # threads that ask for the parts of one weight at once
        barrier = threading.Barrier(threads)

        def work(i, expected=expected, barrier=barrier, number=rounds):
            try:
                stream = torch.cuda.Stream() if device == "cuda" else None
                barrier.wait()
                with torch.cuda.stream(stream):
                    for turn in range(4):
                        k = (i + turn) % len(modules)
                        y = call_alone(modules[k], inputs[i])
                        if stream is not None:
                            stream.synchronize()
                        if not torch.equal(y, expected[i][k]):
                            wrong.append(f"round {number}, thread {i}, module {k}: other bits")
            except Exception as error:
                wrong.append(f"round {number}, thread {i}: {type(error).__name__}: {error}")

        started = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        rounds, calls = rounds + 1, calls + 4 * threads
        if wrong:
            break
    spent = round(time.monotonic() - begin, 3)
    figures = {"rounds": rounds, "calls": calls, "threads": threads}
    return {**figures, "seconds": spent, "wrong": wrong}


# ---- replays ----


def run_replays(replays: int, width: int = 256, rows: int = 200, look_every: int = 1000):
    """One graph of a step of training and of all modules, replayed with inputs that alternate: the
    same bits for the same input, and no memory more."""
    module = make_shared("cuda", width, "ieee")
    inputs = [torch.randn(rows, width, device="cuda") for _ in range(3)]
    x = inputs[0].clone()
    layer = nn.Linear(width, width, precision="ieee", device="cuda")

    def step():
        z = layer(x)
        grads = torch.autograd.grad(z.square().mean(), list(layer.parameters()))
        with torch.no_grad():
            return module(x), *grads

    for _ in range(3):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    expected, wrong = [], []
    for given in inputs:
        x.copy_(given)
        graph.replay()
        expected.append([each.clone() for each in results])
    begin = time.monotonic()
    before = take_sample("cuda", begin, 0)
    for number in range(1, replays + 1):
        if number % look_every == 0 or number == replays:
            k = (number // look_every) % len(inputs)
            x.copy_(inputs[k])
            for each in results:
                each.fill_(torch.nan)
            graph.replay()
            for one, other in zip(results, expected[k], strict=True):
                if not torch.equal(one, other):
                    wrong.append(f"replay {number}: other bits")
        else:
            graph.replay()
        if wrong:
            break
    after = take_sample("cuda", begin, number)
    if after.gpu != before.gpu:
        wrong.append(f"{after.gpu - before.gpu} bytes more on the GPU")
    return {"replays": number, "seconds": after.seconds, "wrong": wrong}


# ---- a soak ----


def _make_function(number: int):
    """An epilogue of its own, which is traced, printed and linked anew."""

    def function(acc, bias):
        return torch.tanh(acc + bias) * (1.0 + number / 1024) + bias

    function.__qualname__ = function.__name__ = f"function_{number}"
    return epilogue(function)


def take_step(rng: random.Random, device: str, largest: int, programs: list) -> None:
    """New weights of new sizes, in training or in inference, by modules, functions and programs;
    all of it is dropped."""
    m, n, k = (rng.randint(2, largest) for _ in range(3))
    precision = rng.choice(("ieee", "tf32", "bf16"))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    word = "ieee" if precision == "bf16" else precision
    x = torch.randn(m, k, device=device, dtype=dtype, requires_grad=rng.random() < 0.5)
    options = {"precision": word, "device": device, "dtype": dtype}
    kind = rng.randrange(5)
    if kind == 0:
        module = nn.LinearScaleLeakyReLU(k, n, 2.0, 0.1, **options)
    elif kind == 1:
        module = nn.LinearScaleBatchNorm1d(k, n, (n,), **options)
    elif kind == 2:
        module = nn.LinearBatchNorm1dScaleSoftmax(k, n, **options)
    else:
        module = nn.Linear(k, n, **options)
    if rng.random() < 0.3:
        module.eval()
    if kind < 4:
        y = module(x)
    else:
        program = rng.choice(programs)
        y = program(x, module.weight, bias=module.bias, precision=word)
    if x.requires_grad and rng.random() < 0.7:
        y.sum().backward()
    if rng.random() < 0.2:
        with torch.no_grad():
            functional.softmax(y.detach())


def run_soak(
    device: str,
    seconds: float,
    samples: int = 12,
    largest: int = 1500,
    programs: int = 8,
    steps: int | None = None,
    is_alone: bool = True,
):
    """Steps with changing shapes, weights and programs, and samples in between: the memory of the
    second half is that of the first. `steps`: so many between two samples, instead of the time.
    `is_alone`: no other process takes memory of the GPU meanwhile."""
    rng, begin, done = random.Random(0), time.monotonic(), 0
    made = [_make_function(number) for number in range(programs)]
    found = []
    for i in range(samples):
        until, count = begin + seconds * (i + 1) / samples, 0
        while count < steps if steps is not None else time.monotonic() < until:
            take_step(rng, device, largest, made)
            done, count = done + 1, count + 1
        # A program that was not there before, and one that nobody has any more.
        made[i % programs] = _make_function(programs + i)
        found.append(take_sample(device, begin, done))
    return {
        "steps": done,
        "seconds": found[-1].seconds,
        "samples": [sample._asdict() for sample in found],
        "wrong": judge_samples(found, is_alone),
    }


# What a process may gain in the second half of a soak: its allocator keeps what it has freed, and
# a kernel that was linked stays.
MOST_HOST, MOST_DEVICE = 96 * MIB, 64 * MIB


def judge_samples(samples: list[Sample], is_alone: bool = True) -> list[str]:
    """What grows: by samples of the second half beside those in the middle."""
    half = samples[len(samples) // 2 :]
    wrong = []
    if any(sample.gpu > half[0].gpu for sample in half):
        wrong.append(f"tensors are left on the GPU: {[sample.gpu for sample in samples]}")
    if any(sample.splits > half[0].splits for sample in half):
        wrong.append(f"parts of weights are left: {[sample.splits for sample in samples]}")
    judged = [("host", MOST_HOST), *([("device", MOST_DEVICE)] if is_alone else [])]
    for name, most in judged:
        gained = getattr(half[-1], name) - getattr(half[0], name)
        if gained > most:
            wrong.append(f"{gained / MIB:.0f} MiB more of {name} memory in the second half")
    return wrong
