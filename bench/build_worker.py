"""python bench/build_worker.py FOLDER: times the build of cutlass_fused in FOLDER for bench.builds.

One JSON object a line comes in and one goes out. It uses public names alone, so that builds of many
commits can be timed by one worker; nothing else of this checkout is imported.

    {"prepare": case}      the module of a case is built and captured -> {"norm": of its result}
    {"samples": count}     -> {"ms": [...]} of so many runs behind each other
    {"drop": true}         all of it is freed -> {}
"""

import json
import os
import sys
import time

sys.path[0] = sys.argv[1]

import torch  # noqa: E402

import cutlass_fused  # noqa: E402
from cutlass_fused import nn  # noqa: E402

DTYPES = {"ieee": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
DTYPES["fp16"] = torch.float16
FLUSH_BYTES = 256 * 2**20  # several times the largest L2 cache
HOST_CALLS = 100  # in one sample: so few that the launch queue is never full
WARM_UP_CALLS = 3


def build_module(case: dict) -> torch.nn.Module:
    n, k = case["N"], case["K"]
    precision = {"precision": case["precision"] if case["precision"] in ("ieee", "tf32") else None}
    build = {
        "linear": lambda: nn.Linear(k, n, **precision),
        "12": lambda: nn.LinearScaleLeakyReLU(k, n, 2.0, 0.1, **precision),
        "33": lambda: nn.LinearScaleBatchNorm1d(k, n, (n,), **precision),
        "39": lambda: nn.LinearScaleBatchNorm1d(k, n, (n,), **precision),
        "84": lambda: nn.LinearBatchNorm1dScaleSoftmax(k, n, **precision),
        "softmax": lambda: nn.Softmax(dim=1),
        "batch_norm": lambda: nn.BatchNorm1d(n),
    }
    return build[case["model"]]()


class Timed:
    """A case that is ready to be timed."""

    def __init__(self, case: dict) -> None:
        torch.manual_seed(0)
        self.host = case["suite"] == "host"
        with torch.device("cuda"):
            dtype = DTYPES[case["precision"]]
            self.module = build_module(case).to(dtype).train(case["mode"] == "train")
            draw = torch.rand if case["K"] else torch.randn  # a layer alone has no K
            self.x = draw(case["M"], case["K"] or case["N"], dtype=dtype)
        for _ in range(WARM_UP_CALLS):
            self.y = self.module(self.x)
        # A second graph's memory would be too much for the largest layers.
        self.y = None
        self.graph = None
        if not self.host:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.module(self.x)
            self.graph.replay()
        else:
            self.y = self.module(self.x)

    def measure_norm(self) -> float:
        """The norm of some rows: enough to see that two builds compute the same."""
        return float(self.y[:64].double().norm())

    def sample(self, count: int, flush: torch.Tensor) -> list[float]:
        return self.sample_host(count) if self.host else self.sample_gpu(count, flush)

    def sample_host(self, count: int) -> list[float]:
        samples = []
        for _ in range(count):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(HOST_CALLS):
                self.module(self.x)
            samples.append(1e3 * (time.perf_counter() - start) / HOST_CALLS)
        torch.cuda.synchronize()
        return samples

    def sample_gpu(self, count: int, flush: torch.Tensor) -> list[float]:
        """On cold caches, by replays of a graph."""
        pairs = []
        for _ in range(count):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.zero_()
            start.record()
            self.graph.replay()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no reply
    print(json.dumps({"package": cutlass_fused.__file__}), file=replies)
    timed, flush = None, torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    with torch.no_grad():
        for line in sys.stdin:
            request, reply = json.loads(line), {}
            try:
                if "prepare" in request:
                    timed = Timed(request["prepare"])
                    reply = {"norm": timed.measure_norm()}
                elif "samples" in request:
                    reply = {"ms": timed.sample(request["samples"], flush)}
                else:
                    timed = None
                    torch.cuda.empty_cache()
            except Exception as error:  # the other build may well do it: the parent tells
                reply = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
