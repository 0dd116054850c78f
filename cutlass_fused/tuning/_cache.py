"""The files that keep what was found: one for each name of a GPU and version of the library.

A file is JSON: what it was measured with, and the tile of each product by the product's key. The
versions of CUTLASS and nvcc are part of that: they make the kernels. The driver is not: it compiles
none for the GPUs that a build is for, and each update would throw everything away.
"""

import hashlib
import json
import os
import pathlib
import re
import uuid
import warnings

from .._library import read_build_info

# Of which element types cuBLAS's product is among the candidates.
OF_CUBLAS = ["float16", "bfloat16", "float32"]


def find_folder() -> pathlib.Path | None:
    """CUTLASS_FUSED_CACHE_DIR, else cutlass_fused in XDG_CACHE_HOME, else in ~/.cache; None where
    there is no home either."""
    if folder := os.environ.get("CUTLASS_FUSED_CACHE_DIR"):
        return pathlib.Path(folder)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):  # else, the specification says, it is to be ignored
        return pathlib.Path(caches) / "cutlass_fused"
    if os.environ.get("HOME") == "":  # which pathlib takes for the root
        return None
    try:
        return pathlib.Path.home() / ".cache" / "cutlass_fused"
    except RuntimeError:
        return None


def read_tiles(gpu: str) -> dict[str, str]:
    """The tile of each product by its key; empty where there is no file or, with a warning, where
    it cannot be used."""
    path = _find_file(gpu)
    if path is None:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        return _ignore(path, f"it cannot be read: {error}")
    if not isinstance(content, dict) or not isinstance(content.get("tiles"), dict):
        return _ignore(path, "it is damaged")
    tiles = content.pop("tiles")
    if content != (expected := _describe_build(gpu)):
        return _ignore(path, f"it is of {content}, not of {expected}")
    if not all(isinstance(tile, str) and tile for tile in tiles.values()):
        return _ignore(path, "it is damaged")
    return tiles


def add_tiles(gpu: str, found: dict[str, str]) -> None:
    """Add to the file, or begin it. What cannot be written is lost, with a warning.

    Readers never see half a file. Of two processes that write at the same time the later one may
    lose what the earlier one found, which is then timed again.
    """
    path = _find_file(gpu)
    if path is None:
        return warnings.warn(
            "cutlass_fused: tuned tiles are not kept: there is no home folder, and "
            "CUTLASS_FUSED_CACHE_DIR is not set",
            RuntimeWarning,
            stacklevel=2,
        )
    content = _describe_build(gpu) | {"tiles": read_tiles(gpu) | found}
    # Beside the file, so that it is in the same file system.
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(
            f"cutlass_fused: tuned tiles are not kept in {path}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def _find_file(gpu: str) -> pathlib.Path | None:
    folder = find_folder()
    name = re.sub(r"[^\w.-]+", "-", gpu)
    return folder and folder / f"{name}-{_describe_build(gpu)['cutlass_fused']}.json"


def _describe_build(gpu: str) -> dict[str, str]:
    from .. import __version__

    build = read_build_info() or {"cutlass": None, "cuda": None}
    return {
        "cutlass_fused": __version__,
        "cutlass": build["cutlass"],
        "nvcc": build["cuda"],
        "kernels": _hash_kernels(build),
        "gpu": gpu,
    }


def _hash_kernels(build: dict) -> str:
    """Which kernels there were to choose between."""
    names = sorted((key, build[key]) for key in build if key.startswith("tiles_"))
    names.append(("cublas", OF_CUBLAS))
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]


def _ignore(path: pathlib.Path, reason: str) -> dict[str, str]:
    warnings.warn(f"cutlass_fused: ignoring {path}: {reason}", RuntimeWarning, stacklevel=3)
    return {}
