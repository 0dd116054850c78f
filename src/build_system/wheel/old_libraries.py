"""Links against the C and C++ libraries as an older distribution has them.

They are made of this machine's: for each, a library without code that has the same symbols in the
newest version that the older one knows. The link binds to these, and the loader finds them in every
later library too. What the older C++ library does not have at all comes from libstdc++.a, hidden;
what the older C library does not have is in old_glibc.c.
"""

import subprocess
from collections import defaultdict
from pathlib import Path

from .. import fail
from ..generated_sources import write_if_changed
from ..paths import BUILD, ROOT
from . import VARIABLE
from .symbols import OLDEST, Symbol, is_within, read_symbols

FOLDER = BUILD / "old_libraries"
OBJECT = FOLDER / "old_glibc.o"
SOURCE = Path("src/build_system/wheel/old_glibc.c")
LIBRARIES = ("libc.so.6", "libm.so.6", "libstdc++.so.6")
# Where functions were before GLIBC 2.34 put them into libc.so.6.
MOVED = {
    "pthread_": "libpthread.so.0",
    "sem_": "libpthread.so.0",
    "dl": "libdl.so.2",
    "shm_": "librt.so.1",
}


SECTIONS = {
    "function": ".text",
    "object": ".data",
    "tls_object": '.section .tbss,"awT",@nobits',
}


def link_flags(compiler: str) -> list[str]:
    """In front of torch, which exports pieces of the C++ library too."""
    # The rest of the C library: what each library holds itself, as atexit, and the loader.
    files = ("libstdc++.a", "libc_nonshared.a", "ld-linux-x86-64.so.2")
    libraries = [str(find_file(compiler, name)) for name in files]
    return [str(OBJECT), "-L", str(FOLDER), "-lstdc++", *libraries]


def write_libraries(compiler: str) -> None:
    for soname, symbols in arrange(compiler).items():
        write_library(compiler, soname, symbols)
    source, output = ROOT / SOURCE, ROOT / OBJECT
    if not output.is_file() or output.stat().st_mtime < source.stat().st_mtime:
        run(compiler, "-x", "c", "-O2", "-fPIC", "-Wall", "-Wextra", "-c", source, "-o", output)


def arrange(compiler: str) -> dict[str, dict[str, Symbol]]:
    """Library -> name -> the newest symbol that an older system has."""
    arranged: dict[str, dict[str, Symbol]] = defaultdict(dict)
    for library in LIBRARIES:
        symbols = read_symbols(find_file(compiler, library))
        default = {symbol.name: symbol for symbol in symbols if symbol.is_default}
        for symbol in symbols:
            if not symbol.is_defined or not is_within(symbol, OLDEST):
                continue
            # An older version that this system keeps for programs alone, and links to no more.
            if symbol.name not in default:
                continue
            is_moved = default[symbol.name].version > OLDEST and library == "libc.so.6"
            homes = (home for start, home in MOVED.items() if symbol.name.startswith(start))
            home = next(homes, library) if is_moved else library
            known = arranged[home].get(symbol.name)
            if known is None or known.version < symbol.version:
                arranged[home][symbol.name] = symbol
    return arranged


def write_library(compiler: str, soname: str, symbols: dict[str, Symbol]) -> None:
    lines, versions = [], defaultdict(list)
    for name, symbol in sorted(symbols.items()):
        lines.append(SECTIONS[symbol.kind])
        lines.append(f".globl {name}\n.type {name}, @{symbol.kind}\n{name}: .zero 1")
        versions[symbol.family, symbol.version].append(name)
    lines.append('.section .note.GNU-stack,"",@progbits\n')
    nodes = []
    for (family, version), names in sorted(versions.items()):
        node = f"{family}_{'.'.join(map(str, version))}"
        nodes.append(f"{node} {{ global: {'; '.join(names)}; }};\n")
    stem = ROOT / FOLDER / soname.partition(".so")[0]
    source, script = Path(f"{stem}.s"), Path(f"{stem}.map")
    is_new = write_if_changed(source, "\n".join(lines))
    is_new = write_if_changed(script, "".join(nodes)) or is_new
    if is_new or not Path(f"{stem}.so").is_file():
        options = [
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={script}",
        ]
        run(compiler, *options, source, "-o", f"{stem}.so")


def find_file(compiler: str, name: str) -> Path:
    path = Path(run(compiler, f"-print-file-name={name}").strip())
    if not path.is_absolute():
        fail(f"{compiler} has no {name}", f"install it, or unset {VARIABLE}")
    return path.resolve()


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        line = next(iter(done.stderr.strip().splitlines()), "no reason given")
        fail(f"{command[0]} does not make the older libraries ({line})", f"unset {VARIABLE}")
    return done.stdout
