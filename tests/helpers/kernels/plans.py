"""Calls whose plan is asked for on the host, of tests/host/plan.cpp, and what is answered."""

import itertools
from typing import NamedTuple

# What a plan depends on of a GPU: its compute capability, SMs, KiB of shared memory to a block.
GPUS = {
    "A100": {"capability": 80, "sms": 108, "memory": 163},
    "RTX 3090": {"capability": 86, "sms": 82, "memory": 99},
    "RTX 4090": {"capability": 89, "sms": 128, "memory": 99},
    "H200": {"capability": 90, "sms": 132, "memory": 227},
}
NUMERICS = {
    "ieee": {"dtype": "float32"},
    "tf32": {"dtype": "float32", "coarse": 1},
    "bf16": {"dtype": "bfloat16"},
    "fp16": {"dtype": "float16"},
}
# The public benchmark's numbers; "84 eval" has its batch norm in the epilogue.
MODELS = {
    "12": {"m": 1024, "n": 8192, "k": 8192},
    "33": {"m": 1024, "n": 8192, "k": 8192, "tail": "batch_norm"},
    "39": {"m": 16384, "n": 4096, "k": 4096, "tail": "batch_norm"},
    "84": {"m": 1024, "n": 8192, "k": 8192, "tail": "batch_norm", "is_last": 0},
    "84 eval": {
        **{"m": 1024, "n": 8192, "k": 8192, "tail": "logits"},
        **{"epilogue": "scale_batch_norm", "y_dtype": "float32"},
    },
}
# All that a launch may find to be impossible, by the names of Part, and how the text of a plan with
# it tells.
TRACES = {
    "copies": r" copied",
    "cublas": r"^cublas",
    "product": r"^sm90",
    "statistics": r"^sm90.*statistics: (product|strips)",
    "strips": r"statistics: strips",
    "group": r"statistics: group",
    "logits": r"logits",
    "on_chip": r"statistics: on chip",
}


class Plan(NamedTuple):
    text: str  # of the log
    kernel: str  # in the registry: "<generation> <Math row> <tile> <epilogue>", or "-"
    refused: str  # what is struck out if the launch is refused, or "-"
    split_rows: str  # "splits", and how they are repaired


class Host:
    """The host program."""

    def __init__(self, run):
        self.run = run

    def run_all(self, command: str, calls: list[dict]) -> list[str]:
        return self.run(format_command(command, call) for call in calls)

    def make_plans(self, calls: list[dict]) -> list[Plan]:
        return [Plan(*answer.split("\t")) for answer in self.run_all("plan", calls)]

    def make_plan(self, **call) -> Plan:
        return self.make_plans([call])[0]

    def list_tiles(self, numerics: str) -> list[str]:
        (names,) = self.run([format_command("tiles", NUMERICS[numerics] | {"k": 64})])
        return names.split()


def format_command(command: str, call: dict) -> str:
    words = (f"{name}={value}" for name, value in call.items() if value != "")
    return " ".join((command, *words))


def make_call(gpu: str, model: str, numerics: str, **changes) -> dict:
    return GPUS[gpu] | MODELS[model] | NUMERICS[numerics] | changes


# For epilogues and batch norms of any kind: few rows, some, many, more than 32 MiB of z; rows that
# TMA reads and writes, of whole 4 bytes, of odd lengths; no K, a K for CUDA cores, a long one.
SIZES = [(1, 4096, 4096), (200, 512, 512), (1024, 8192, 8192), (4096, 512, 64), (16384, 4096, 4096)]
SIZES += [(1024, 8192, 8190), (1024, 8191, 8192), (600, 129, 1001), (3, 7, 1), (70, 136, 0)]
SIZES += [(70, 136, 32), (70, 136, 33), (1000, 1032, 72)]
TAILS = [
    {"tail": "epilogue"},
    {"tail": "epilogue", "bare": 1},
    {"tail": "epilogue", "epilogue": "scale_batch_norm"},
    {"tail": "epilogue", "y_dtype": "float32"},
    {"tail": "logits", "epilogue": "scale_batch_norm", "y_dtype": "float32"},
    {"tail": "batch_norm"},
    {"tail": "batch_norm", "keeps_z": 1},
    {"tail": "batch_norm", "keeps_z": 1, "has_centre": 1},
    {"tail": "batch_norm", "is_last": 0},
]


def list_calls() -> list[dict]:
    """Every kind of call on every GPU."""
    kinds = itertools.product(GPUS.values(), SIZES, NUMERICS.values(), TAILS)
    return [
        gpu | {"m": m, "n": n, "k": k} | numerics | tail for gpu, (m, n, k), numerics, tail in kinds
    ]
