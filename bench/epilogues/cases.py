"""The cases of bench.epilogues: which program, in which precision, at which size, timed how."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused import comparison

from .programs import PROGRAMS, Plain

# Many terms in a sum; few terms, where the epilogue counts.
LARGE = 1024, 8192, 8192
SHORT = 8192, 4096, 512
# Layers that people have.
FEATURES = (512, 512), (2048, 512)  # (N, K)
BATCHES = 16, 256, 4096
OF_USERS = "gelu", "gate", "residual"

# Each part is timed in a way of its own, what matters most first: a budget may end before the last.
PARTS = ("large", "fp32", "first", "users", "rows", "steps", "others")

AUTOTUNED = "gelu", "gate"  # it takes 10 s and more to compile
FIRST = (
    ("affine", "bf16"),
    ("gelu", "bf16"),
    ("gate", "bf16"),
    ("two_outputs", "bf16"),
    ("gelu", "ieee"),  # and the program in the kernel that repairs split rows
)

VARIANTS = (
    "ours",
    "identity",
    "compiled",
    "eager",
    "compile",
    "max_autotune",
    "bare_product",
    "copy",
    "first_call",
    "cached_call",
    "bare_products",
)
OF_STEPS = "ours", "eager", "compile", "bare_products"
OF_FIRST = "first_call", "cached_call"


class EpilogueCase(NamedTuple):
    part: str
    program: str
    precision: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        shape = f"M={self.m} N={self.n} K={self.k}"
        return f"{self.part}: {self.program}, {self.precision}, {shape}"

    @property
    def setting(self) -> str:
        """What PyTorch's fp32 products are set to, and what ours are told."""
        return comparison.PRECISIONS[self.precision].setting

    def describe(self, suite: str, weight: str = "new") -> dict:
        """The part of a row that all variants share; `weight` is said of steps alone."""
        words = {"suite": suite, "model": self.program, "mode": "eval", "precision": self.precision}
        row = {**words, "M": self.m, "N": self.n, "K": self.k}
        if self.part == "steps":
            row |= {"mode": "train", "weight": weight, "grad": True}
        return row | ({"fresh": True} if self.part == "first" else {})


def list_cases(
    parts: Sequence[str] = PARTS,
    programs: Sequence[str] = tuple(PROGRAMS),
    precisions: Sequence[str] = tuple(comparison.PRECISIONS),
) -> list[EpilogueCase]:
    users = [
        (name, p, m, *pair)
        for p in ("bf16", "ieee")
        for name in OF_USERS
        for pair in FEATURES
        for m in BATCHES
    ]
    rows = [name for name, each in PROGRAMS.items() if each.adds_along_rows]
    elements = [name for name in PROGRAMS if name not in rows]
    cases = {
        "large": [(name, "bf16", *shape) for shape in (LARGE, SHORT) for name in elements],
        "fp32": [(name, "ieee", *LARGE) for name in elements],
        "first": [(*pair, *LARGE) for pair in FIRST],
        "users": users,
        "rows": [
            (name, p, *shape) for p in ("bf16", "ieee") for shape in (LARGE, SHORT) for name in rows
        ],
        # A small batch and a large one of other layers.
        "steps": [case for case in users if case[2:] in ((256, 512, 512), (4096, 2048, 512))],
        "others": [(name, "tf32", *LARGE) for name in elements]
        + [(name, "fp16", *LARGE) for name in ("gelu", "gate")],
    }  # fmt: skip
    listed = [EpilogueCase(part, *case) for part in parts for case in cases[part]]
    return [c for c in listed if c.program in programs and c.precision in precisions]


def list_variants(case: EpilogueCase) -> list[str]:
    """What is timed in a case."""
    if case.part == "first":
        return list(OF_FIRST)
    if case.part == "steps":
        return list(OF_STEPS)
    left_out = {*OF_FIRST, "bare_products"}
    if case.program == "identity":
        left_out.add("identity")
    if case.program != "scale_leaky_relu":
        left_out.add("compiled")
    if case.part != "large" or case.program not in AUTOTUNED:
        left_out.add("max_autotune")
    if case.part == "users" or not PROGRAMS[case.program].has_matrix:
        left_out.add("copy")
    return [name for name in VARIANTS if name not in left_out]


class Problem(NamedTuple):
    """What the variants of a case work on."""

    case: EpilogueCase
    plain: Plain
    x: Tensor


def build_problem(case: EpilogueCase, device: str) -> Problem:
    """The same numbers in every precision, but for their rounding."""
    dtype = comparison.PRECISIONS[case.precision].dtype
    with comparison.keep_seed(device), torch.device(device):
        torch.manual_seed(0)
        plain = Plain(case.program, case.m, case.n, case.k)
        x = torch.rand(case.m, case.k)  # as bench.models has them
    return Problem(case, plain.to(dtype).eval(), x.to(dtype))
