"""The C++ compiler: `CXX`, else g++. nvcc uses the same one."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from . import fail
from .cuda_toolkit import CudaToolkit
from .paths import BUILD, ROOT


def name_host_compiler() -> str:
    return os.environ.get("CXX") or "g++"


def check_host_compiler(toolkit: CudaToolkit, compiler: str) -> None:
    """Ends with nvcc's own words if it refuses the compiler, which it does by version."""
    accepted = ROOT / BUILD / "accepted_host_compiler.txt"
    pair = f"{toolkit.nvcc} {toolkit.version} {compiler} {read_identity(compiler)}\n"
    if accepted.is_file() and accepted.read_text() == pair:
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.cu")
        source.write_text("")
        command = [toolkit.nvcc, "-ccbin", compiler, "-c", source, "-o", Path(folder, "empty.o")]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        fail(
            f"nvcc {toolkit.version[0]}.{toolkit.version[1]} refuses the host compiler {compiler} "
            f"({quote_error(result.stdout + result.stderr)})",
            "install a g++ that it supports and name it in CXX, as in CXX=g++-13",
        )
    accepted.parent.mkdir(parents=True, exist_ok=True)
    accepted.write_text(pair)


def read_identity(compiler: str) -> str:
    """The compiler's version line, so that an upgrade under the same name is checked again."""
    try:
        result = subprocess.run([compiler, "--version"], capture_output=True, text=True)
    except OSError as error:
        fail(
            f"the host compiler {compiler} does not run ({error.strerror})",
            "install g++, or name another in CXX",
        )
    return result.stdout.split("\n")[0]


def quote_error(output: str) -> str:
    """The sentence in which nvcc says why, without the file and line before it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    line = next((line for line in lines if re.search(r"error|fatal", line)), "no reason given")
    sentence = re.sub(r"^.*(#error -- |error: |fatal\s*: )", "", line)
    return sentence.split(" The nvcc flag")[0].rstrip(".!")
