"""Links the common epilogues, and packs their kernels into one file: common_kernels.bin.

It is a step of the library's build, behind its link. src/link/kept/common_kernels.hpp has the
format, and reads it. Where NVRTC is missing, or the library cannot be loaded, nothing is written:
each kernel is then linked by its first call.

`python -m cutlass_fused.build_epilogues.pack OUT`, with the library in CUTLASS_FUSED_LIBRARY
"""

import hashlib
import os
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import _library
from .calls import link
from .common import choose_gpus, list_common

FIRST_LINE = b"cutlass_fused common kernels 2\n"
# Of the files that the library keeps (src/link/kept/disk_cache.hpp), which hold their keys.
CACHE_LINE = b"cutlass_fused kernel 1\n"


def read_cached(data: bytes) -> tuple[bytes, bytes]:
    """The key and the content of a file of the cache."""
    if not data.startswith(CACHE_LINE):
        raise ValueError("a file of the cache has another format")
    parts, at = [], len(CACHE_LINE)
    for _ in range(2):
        size = int.from_bytes(data[at : at + 8], sys.byteorder)
        parts.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    return parts[0], parts[1]


def pack(kernels: dict[bytes, bytes]) -> bytes:
    """By their keys."""
    by_sum = {hashlib.sha256(key).hexdigest(): content for key, content in kernels.items()}
    sums = sorted(by_sum)
    packed = [zlib.compress(by_sum[each], 9) for each in sums]
    lines = [
        f"{each} {len(by_sum[each])} {len(data)} {hashlib.sha256(by_sum[each]).hexdigest()}\n"
        for each, data in zip(sums, packed, strict=True)
    ]
    head = b"".join([FIRST_LINE, "".join(lines).encode(), b"\n"])
    return b"".join([head, hashlib.sha256(head).digest(), *packed])


def link_all(folder: str) -> dict[bytes, bytes]:
    """The kernels, which the library writes to this folder. Raises RuntimeError where one cannot be
    linked."""
    os.environ["CUTLASS_FUSED_CACHE_DIR"] = folder
    build, links = _library.read_build_info(), _library.read_link_info()
    if build is None:
        raise RuntimeError(_library.load_error())
    if links["nvrtc"] is None:
        raise RuntimeError(f"there is no NVRTC: {links['nvrtc_error']}")
    gpus = choose_gpus(build["archs"])
    threads = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads) as pool:
        work = [
            (name, pool.submit(link, call, gpu, sizes))
            for name, call, sizes in list_common()
            for gpu in gpus
        ]
        for name, done in work:
            for answer in done.result():
                if answer.startswith(("refused", "failed")):
                    raise RuntimeError(f"{name}: {answer}")
    return dict(read_cached(path.read_bytes()) for path in (Path(folder) / "kernels").iterdir())


def main(out: Path) -> int:
    out.unlink(missing_ok=True)  # of another build: it would be read
    with tempfile.TemporaryDirectory() as folder:
        try:
            kernels = link_all(folder)
        except Exception as error:  # the library is whole without them
            print(f"cutlass_fused: {out.name} is left out: {error}", flush=True)
            return 1
    out.write_bytes(pack(kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
