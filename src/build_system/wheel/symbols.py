"""Which versions of the system's symbols a library asks for, and so where it can be loaded.

A distribution runs a wheel tagged manylinux_2_28 if its C library is 2.28 or newer; the tag also
bounds the C++ library and its runtime, as the tool auditwheel has it.
"""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

Version = tuple[int, ...]
# GLIBC -> the newest of the other two that its tag allows.
TAGS: dict[Version, dict[str, Version]] = {
    (2, 28): {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)},
    (2, 31): {"GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)},
    (2, 34): {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)},
    (2, 35): {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)},
}
OLDEST = (2, 28)  # that of torch's own wheels
LINE = re.compile(
    r"^[0-9a-f]{16} (?P<flags>.{7}) (?P<section>(?!\*ABS)\S+)\s+[0-9a-f]{16}\s+"
    r"(?P<bracket>\(?)(?P<family>[A-Z]+)_(?P<version>[0-9.]+)\)?\s+(?:\.\w+ )?(?P<name>\S+)$"
)


class Symbol(NamedTuple):
    name: str
    family: str  # "GLIBC", "GLIBCXX", "CXXABI", "GCC"
    version: Version
    is_defined: bool
    is_default: bool  # what a link takes
    kind: str  # "function", "object", "tls_object": of each thread


def read_symbols(library: Path) -> list[Symbol]:
    command = ["objdump", "-T", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = []
    for match in filter(None, map(LINE.match, text.splitlines())):
        is_defined, flags = match["section"] != "*UND*", match["flags"]
        symbols.append(
            Symbol(
                match["name"],
                match["family"],
                tuple(map(int, match["version"].strip(".").split("."))),
                is_defined,
                is_defined and not match["bracket"],
                find_kind(flags, match["section"]),
            )
        )
    return symbols


def find_kind(flags: str, section: str) -> str:
    if flags.endswith("F") or "i" in flags:  # i: chosen when it is loaded
        return "function"
    return "tls_object" if section in (".tbss", ".tdata") else "object"


def is_within(symbol: Symbol, oldest: Version) -> bool:
    """Whether a system of this C library has the symbol."""
    limits = TAGS[oldest] | {"GLIBC": oldest, "GCC": (7,)}
    return symbol.family in limits and symbol.version <= limits[symbol.family]


def list_newer(library: Path, oldest: Version) -> list[str]:
    """What a library asks for that is newer: "GLIBC_2.34 dlopen"."""
    return sorted(
        f"{symbol.family}_{'.'.join(map(str, symbol.version))} {symbol.name}"
        for symbol in read_symbols(library)
        if not symbol.is_defined and not is_within(symbol, oldest)
    )


def find_tag(libraries: Iterable[Path], machine: str = "x86_64") -> str:
    """The widest tag that is true of all of them; "linux_x86_64": none of those above."""
    libraries = list(libraries)
    if not libraries:
        raise ValueError("find_tag: there must be a library, got none")
    for oldest in sorted(TAGS):
        if not any(list_newer(library, oldest) for library in libraries):
            return f"manylinux_{oldest[0]}_{oldest[1]}_{machine}"
    return f"linux_{machine}"
