"""Packs open kernels, which nvcc has compiled to PTX, into one file: open_kernels.bin.

    cutlass_fused open kernels 2
    NAME ARCH PARAM_BYTES UNPACKED_BYTES PACKED_BYTES SUM     a line for each, sorted by name
                                                              an empty line
    32 bytes of SHA-256 of all before
    the packed texts, one behind the other in that order

ARCH is what the text is assembled for: sm_90a, or compute_80, which serves every GPU. A text is PTX
with a single kernel, packed by zlib; PARAM_BYTES are those of the kernel's parameter, SUM is the
SHA-256 of the text. src/link/open reads it.

`python -m build_system.open_kernels OUT FILE.ptx ...`
"""

import hashlib
import re
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

FIRST_LINE = b"cutlass_fused open kernels 2\n"
MARK = "// CUTLASS_FUSED_"


def split(text: str) -> dict[str, str]:
    """The kernels of a file of PTX, by name: texts without comments but for the marked lines, and
    without variables that nothing names."""
    head, *entries = re.split(r"^\.visible \.entry ", text, flags=re.MULTILINE)
    declarations = [line for line in head.splitlines() if line.startswith(".")]
    kernels = {}
    for entry in entries:
        name = re.match(r"\w+", entry)[0]
        body = shorten(entry[: entry.rindex("}") + 1])
        words = set(re.findall(r"[\w$]+", body))
        used = [line for line in declarations if is_used(line, words)]
        kernels[name] = "\n".join([*used, f".visible .entry {body}", ""])
    return kernels


def is_used(declaration: str, words: set[str]) -> bool:
    if not declaration.startswith((".global", ".extern")):
        return True  # .version, .target, .address_size
    return re.search(r"([\w$]+)\[", declaration)[1] in words


def shorten(body: str) -> str:
    lines = (" ".join(line.split()) for line in body.splitlines())
    return "\n".join(line for line in lines if line and (line[:2] != "//" or MARK in line))


def derive_f16(kernels: dict[str, str]) -> dict[str, str]:
    """Those of fp16, of kernels of bf16: nothing differs but the types of what multiplies and of
    what rounds results. Compiled beside each other they take twice the time."""
    return {
        name.replace("_bf16_", "_f16_"): replace_types(
            text.replace(name, name.replace("bf16", "f16"))
        )
        for name, text in kernels.items()
        if "_bf16_" in name
    }


def replace_types(text: str) -> str:
    text = re.sub(r"^((?:wgmma|mma)\.\S*?\.f32)\.bf16\.bf16", r"\1.f16.f16", text, flags=re.M)
    text = re.sub(r"^cvt\.rn\.bf16(x2)?\.f32 ", r"cvt.rn.f16\1.f32 ", text, flags=re.M)
    left = re.search(r"^.*bf16.*$", text, re.M)
    if left is not None:
        raise ValueError(f"no kernel of fp16 follows from one of bf16 with {left[0]!r}")
    return text


def read_arch(text: str) -> str:
    """PTX for one GPU's own instructions is for that GPU alone."""
    target = re.search(r"^\.target (sm_\w+)", text, re.MULTILINE)[1]
    return target if target.endswith("a") else target.replace("sm", "compute")


def read_param_bytes(text: str) -> int:
    """0 where it has none that the library could fill."""
    found = re.search(r"^\.param \.align \d+ \.b8 \w+_param_0\[(\d+)\]", text, re.MULTILINE)
    return int(found[1]) if found else 0


def pack(kernels: dict[str, str]) -> bytes:
    names = sorted(kernels)
    texts = [kernels[name].encode() for name in names]
    packed = [zlib.compress(text, 9) for text in texts]
    lines = [
        f"{name} {read_arch(kernels[name])} {read_param_bytes(kernels[name])} {len(text)} "
        f"{len(data)} {hashlib.sha256(text).hexdigest()}\n".encode()
        for name, text, data in zip(names, texts, packed, strict=True)
    ]
    listed = b"".join([FIRST_LINE, *lines, b"\n"])
    return b"".join([listed, hashlib.sha256(listed).digest(), *packed])


def read_all(paths: Iterable[str]) -> dict[str, str]:
    kernels = {}
    for path in paths:
        kernels |= split(Path(path).read_text())
    return derive_f16(kernels) | kernels


if __name__ == "__main__":
    out, *paths = sys.argv[1:]
    Path(out).write_bytes(pack(read_all(paths)))
