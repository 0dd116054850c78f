"""The text of build.ninja: one edge per source, one to link each library, two to pack kernels.

And clocks, where the environment asks for them.
"""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kernels.table import StandaloneKernel

from . import clock
from .architectures import ARCH_GROUPS, gencode_flags
from .flags import (
    Tools,
    cpp_flags,
    cuda_flags,
    file_defines,
    launcher,
    libraries,
    link_flags,
    op_flags,
    switch_flags,
)
from .generated_sources import write_kernels, write_open_kernels
from .paths import BUILD, COMMON_KERNELS, GENERATED, LIBRARY, OPEN_KERNELS, PACKAGE, ROOT, SWITCH
from .wheel import is_for_other_machines, old_libraries
from .wheel.isolation import find_python
from .wheel.op_namespace import choose_namespace, namespace_flags

RULES = """\
ninja_required_version = 1.8
builddir = {build}

rule nvcc
  command = {launcher} {nvcc} {cuda_flags} $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = nvcc $in

rule ptx
  command = {launcher} {nvcc} {cuda_flags} $flags -MD -MF $out.d -ptx $in -o $out
  depfile = $out.d
  deps = gcc
  description = nvcc -ptx $in

rule clock
  command = {nvcc} {cuda_flags} $flags -ptx $in -o $out
  description = nvcc -ptx $in, for its time

rule pack
  command = env PYTHONPATH=src {python} -m build_system.open_kernels $out $in
  description = pack $out

rule common
  command = env CUTLASS_FUSED_LIBRARY={library} {python} -m cutlass_fused.build_epilogues.pack $out
  description = link common epilogues into $out

rule cxx
  command = {launcher} {cxx} {cpp_flags} $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = {cxx} $in

rule link
  command = {cxx} -shared -o $out $in {link_flags} $libraries
  description = link $out
"""


# Where the C++ files of the ops lie that are not generated.
HOST_FOLDERS = (
    "src/checks",
    "src/launch",
    "src/launch/cublas",
    "src/launch/as_they_lie",
    "src/launch/programs",
    "src/link",
    "src/link/kept",
    "src/link/open",
    "src/ops",
    "src/ops/gradients",
    "src/ops/programs",
    "src/ops/splits",
    "src/ops/sums",
    "src/kernels",
)
SWITCH_FOLDERS = ("src/switch", "src/switch/norms")


class Edge(NamedTuple):
    rule: str
    source: Path
    flags: list[str]
    library: Path = LIBRARY

    @property
    def output(self) -> Path:
        """Files that are compiled for a namespace of ops keep an object for each."""
        ending = "ptx" if self.rule == "ptx" else "o"
        folder = choose_namespace() if namespace_flags(self.source) else ""
        return BUILD / "objects" / folder / f"{self.source.name}.{ending}"


class Clock(NamedTuple):
    """An edge whose output no library holds."""

    rule: str
    source: Path
    flags: list[str]
    output: Path
    library: None = None


def list_edges(tools: Tools) -> list[Edge]:
    """What to compile, the longest first: ninja starts edges in this order."""
    # The CUDA files that are not generated: kernels without a product, for any GPU that the oldest
    # group serves.
    plain = gencode_flags(ARCH_GROUPS["Sm80"], tools.archs, StandaloneKernel.own_passes)
    defines = file_defines(tools)
    edges = []
    for kernel in write_kernels():
        gencode = gencode_flags(ARCH_GROUPS[kernel.arch], tools.archs, kernel.own_passes)
        if gencode:
            edges.append(Edge("nvcc", GENERATED / kernel.file_name, gencode))
    edges += list_open_edges(tools)
    for source in list_sources("src/kernels", "*.cu"):
        edges.append(Edge("nvcc", source, plain))
    for folder in HOST_FOLDERS:
        for source in list_sources(folder, "*.cpp"):
            flags = op_flags(tools) + defines.get(source, []) + namespace_flags(source)
            edges.append(Edge("cxx", source, flags))
    for folder in SWITCH_FOLDERS:
        for source in list_sources(folder, "*.cpp"):
            edges.append(Edge("cxx", source, switch_flags(tools) + namespace_flags(source), SWITCH))
    return edges


def list_open_edges(tools: Tools) -> list[Edge]:
    """Of both halves of open kernels."""
    edges = []
    kernels, host = write_open_kernels()
    for file in (*kernels, *host):
        group, source = ARCH_GROUPS[file.arch], GENERATED / file.file_name
        gencode = gencode_flags(group, tools.archs)
        if gencode and file in host:
            edges.append(Edge("nvcc", source, gencode))
        elif gencode:
            edges.append(Edge("ptx", source, [f"-arch={group.virtual}"], OPEN_KERNELS))
    return edges


def add_clocks(edges: list[Edge]) -> tuple[list[Edge | Clock], list[Path]]:
    """All edges, with clocks among those that take long, and what the clocks write."""
    if not clock.is_asked_for():
        return edges, []
    source, result, clocks, count = clock.write_source(), [], [], 0
    for edge in edges:
        if edge.rule == "ptx" or re.match(r"sm\d+_", edge.source.name):
            if count % clock.EVERY == 0:
                clocks.append(clock.name_output(len(clocks)))
                result.append(Clock("clock", source, clock.FLAGS, clocks[-1]))
            count += 1
        result.append(edge)
    return result, clocks


def list_sources(folder: str | Path, pattern: str) -> list[Path]:
    return sorted(path.relative_to(ROOT) for path in (ROOT / folder).glob(pattern))


def format_ninja(tools: Tools, edges: list[Edge]) -> str:
    edges, clocks = add_clocks(edges)
    blocks = [
        RULES.format(
            build=escape(BUILD),
            launcher=quote(launcher()),
            python=quote([find_python()]),
            library=quote([LIBRARY]),
            nvcc=quote([tools.toolkit.nvcc]),
            cxx=quote([tools.host_compiler]),
            cuda_flags=quote(cuda_flags(tools)),
            cpp_flags=quote(cpp_flags(tools)),
            link_flags=quote(link_flags(tools)),
        )
    ]
    for edge in edges:
        blocks.append(
            f"build {escape(edge.output)}: {edge.rule} {escape(edge.source)}\n"
            f"  flags = {quote(edge.flags)}\n"
        )
    # ninja starts first what most other edges wait for, so the library waits for clocks too.
    awaited = f"|| {' '.join(map(escape, clocks))}" if clocks else ""
    for library, linked in libraries(tools).items():
        outputs = " ".join(escape(edge.output) for edge in edges if edge.library == library)
        # The static CUDA runtime is an input too: another toolkit links again.
        implicit = [tools.toolkit.cudart]
        if is_for_other_machines():
            implicit.append(old_libraries.OBJECT)
        inputs = f"{outputs} | {' '.join(map(escape, implicit))} {awaited}".rstrip()
        blocks.append(f"build {escape(library)}: link {inputs}\n  libraries = {quote(linked)}\n")
    texts = " ".join(escape(edge.output) for edge in edges if edge.library == OPEN_KERNELS)
    blocks.append(
        f"build {escape(OPEN_KERNELS)}: pack {texts} | src/build_system/open_kernels.py\n"
    )
    # What the package in Python traces is linked by the library.
    sources = [PACKAGE / "schemas.txt"]
    for folder in ("programs", "programs/tracing", "build_epilogues"):
        sources += list_sources(PACKAGE / folder, "*.py")
    inputs = " ".join(map(escape, [LIBRARY, OPEN_KERNELS]))
    implicit = " ".join(map(escape, sources))
    blocks.append(f"build {escape(COMMON_KERNELS)}: common {inputs} | {implicit}\n")
    return "\n".join(blocks)


def escape(path: Path) -> str:
    """A path as ninja reads it on a build line."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def quote(words: Iterable[object]) -> str:
    """Words as the shell reads them in a ninja command."""
    return shlex.join(map(str, words)).replace("$", "$$")
