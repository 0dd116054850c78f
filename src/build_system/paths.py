"""Where the build reads and writes. All paths in build.ninja are relative to ROOT."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("cutlass_fused")
BUILD = Path("build/cutlass_fused")
GENERATED = BUILD / "generated"
LIBRARY = BUILD / "libcutlass_fused.so"
# The kernels of the switch, for one version of torch: optional.
SWITCH = BUILD / "libcutlass_fused_switch.so"
# Kernels as PTX, for programs that come later.
OPEN_KERNELS = BUILD / "open_kernels.bin"
# Common programs, linked: optional.
COMMON_KERNELS = BUILD / "common_kernels.bin"
# What an isolated build keeps for the next one: see wheel/isolation.py.
KEPT = Path("build/packages")
# ninja's version: another one may not read what this one wrote down, and builds all of it again.
NINJA_VERSION = BUILD / "ninja_version.txt"
# Wall seconds of the last run of ninja that compiled something.
BUILD_SECONDS = Path("build/build_seconds.txt")
