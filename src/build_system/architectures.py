"""Which GPUs the library is compiled for, and with which nvcc flags.

The list is `CUTLASS_FUSED_ARCHS` ("8.0;9.0a"), else the GPUs of this machine, else DEFAULT, which a
wheel for other machines takes too.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from . import fail
from .paths import ROOT
from .wheel import is_for_other_machines

VARIABLE = "CUTLASS_FUSED_ARCHS"
DEFAULT = "8.0;9.0a"


class Arch(NamedTuple):
    """A compute capability; `feature` is "a" where instructions of that very GPU may be used."""

    major: int
    minor: int
    feature: str = ""

    @property
    def number(self) -> str:
        return f"{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.feature}"


class ArchGroup(NamedTuple):
    """The kernels of one CUTLASS generation. The front end runs once, for `virtual`; its PTX is
    assembled for every listed architecture in `runs_on`, which costs far less than a second pass.
    """

    virtual: str
    runs_on: Callable[[Arch], bool]
    real: Callable[[Arch], str]
    ptx: Arch | None = None  # listing it also ships the PTX, for GPUs newer than nvcc
    own: Arch | None = None  # the only one in `runs_on`, if its instructions are those of one GPU


def own_group(arch: Arch) -> ArchGroup:
    real = f"sm_{arch.number}{arch.feature}"
    return ArchGroup(real.replace("sm", "compute"), lambda a: a == arch, lambda _: real, own=arch)


def parse_arch(text: str) -> Arch | None:
    """ "9.0a"; None: no compute capability."""
    match = re.fullmatch(r"(\d+)\.(\d)(a?)", text)
    return match and Arch(int(match[1]), int(match[2]), match[3])


def read_groups(header: Path = ROOT / "include/cutlass_fused/common/arch.hpp") -> dict:
    """A group for each row of CUTLASS_FUSED_ARCH_ROWS; only the oldest serves every GPU."""
    rows = re.findall(r'^  ROW\((\w+), \d+, "([^"]*)", ', header.read_text(), re.MULTILINE)
    return {name: own_group(parse_arch(own)) if own else EVERY_GPU for name, own in rows}


EVERY_GPU = ArchGroup(
    virtual="compute_80",
    runs_on=lambda arch: True,
    real=lambda arch: f"sm_{arch.number}",
    ptx=Arch(8, 0),
)
ARCH_GROUPS = read_groups()
OWN_ARCHS = [group.own for group in ARCH_GROUPS.values() if group.own is not None]


def parse_architectures(text: str) -> list[Arch]:
    """ "8.0;9.0a" -> [8.0, 9.0a], sorted, each once."""
    remedy = f'set {VARIABLE} to a list like "{DEFAULT}"'
    archs = set()
    for item in filter(None, (item.strip() for item in text.split(";"))):
        arch = parse_arch(item)
        if arch is None:
            fail(f"{VARIABLE} holds {item!r}, which is no compute capability", remedy)
        if arch < Arch(8, 0):
            fail(f"{VARIABLE} holds {item}, but the oldest GPU supported is 8.0", remedy)
        if arch.feature and arch not in OWN_ARCHS:
            own = " and ".join(map(str, OWN_ARCHS))
            fail(f"{VARIABLE} holds {item}, but only {own} have kernels of their own", remedy)
        archs.add(arch)
    if not archs:
        fail(f"{VARIABLE} holds no architecture", remedy)
    return sorted(archs)


def choose_architectures(supported: set[str]) -> list[Arch]:
    """The architectures to compile for. `supported` is what nvcc can assemble: {"sm_80", ...}."""
    text = os.environ.get(VARIABLE, "")
    if text.strip():
        archs = parse_architectures(text)
        for arch in archs:
            if f"sm_{arch.number}" not in supported:
                fail(
                    f"{VARIABLE} holds {arch}, which this nvcc cannot compile for",
                    "leave it out or install a newer CUDA toolkit",
                )
        return archs
    gpus = [] if is_for_other_machines() else detect_gpus()
    return architectures_of(gpus, supported) or parse_architectures(DEFAULT)


def architectures_of(gpus: Iterable[tuple[int, int]], supported: set[str]) -> list[Arch]:
    """What GPUs with these compute capabilities need; those older than 8.0 need nothing."""
    archs = set()
    for major, minor in gpus:
        arch = Arch(major, minor, "a" if (major, minor) == (9, 0) else "")
        if arch >= Arch(8, 0):
            # A GPU newer than nvcc runs the PTX.
            archs.add(arch if f"sm_{arch.number}" in supported else Arch(8, 0))
    return sorted(archs)


def detect_gpus() -> list[tuple[int, int]]:
    """The compute capabilities of this machine's GPUs; none where torch sees none."""
    try:
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [torch.cuda.get_device_capability(index) for index in range(count)]
    except Exception:  # a broken driver is no reason not to build
        return []


def shipped_ptx(archs: list[Arch]) -> str:
    """The PTX in the library as an architecture, "" if there is none."""
    return ";".join(
        str(g.ptx) for g in ARCH_GROUPS.values() if g.ptx is not None and g.ptx in archs
    )


def gencode_flags(group: ArchGroup, archs: list[Arch], own_passes: Iterable[str] = ()) -> list[str]:
    """nvcc's flags for a group's files; empty when no listed architecture runs them. Architectures
    in `own_passes` ("90") get a front-end pass each, in which their number is __CUDA_ARCH__."""
    # 9.0 and 9.0a are one real architecture for kernels that use no feature of the GPU's own.
    code = list(dict.fromkeys(group.real(arch) for arch in archs if group.runs_on(arch)))
    if not code:
        return []
    own = [real for real in code if real.removeprefix("sm_") in own_passes]
    common = [real for real in code if real not in own]
    if group.ptx in archs:
        common.append(group.virtual)
    flags = []
    if common:
        flags += ["-gencode", f"arch={group.virtual},code=[{','.join(common)}]"]
    for real in own:
        flags += ["-gencode", f"arch={real.replace('sm', 'compute')},code={real}"]
    return flags
