"""A copy of the repository in which a recipe is followed to the letter."""

import os
import shutil
import subprocess
import sys

from documents import list_blocks

from build_system.architectures import parse_architectures
from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cpp_flags, op_flags
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import find_torch


def find_block(recipe, language, part):
    """The one block of the recipe that holds `part`."""
    (block,) = (block for block in list_blocks(recipe, language) if part in block)
    return block


def follow_recipe(folder, recipe, files, table, row, command):
    """The repository with the files and the row, and what the command has written, in `folder`.

    `files` are texts by path, `table` the name of that of src/kernels/table.py with the row.
    """
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "results")
    for name in ("bench", "cutlass_fused", "include", "src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for path in (*ROOT.glob("*.*"), ROOT / "Makefile"):
        if path.is_file():
            shutil.copy(path, folder)
    if (ROOT / "third_party").is_dir():
        (folder / "third_party").symlink_to(ROOT / "third_party")
    for path, text in files.items():
        assert f"`{path}`" in recipe and not (folder / path).exists()
        (folder / path).write_text(text)
    path = folder / "src/kernels/table.py"
    text, head = path.read_text(), f"{table} = {{\n"
    assert text.count(head) == 1
    path.write_text(text.replace(head, f"{head}    {row}"))
    program, *arguments = command.split()
    assert program == "python"
    run_python(folder, *arguments)


def list_changed(folder):
    """The files that are new in the copy, or other than in the repository."""
    before, after = _read_sources(ROOT), _read_sources(folder)
    return {path for path, text in after.items() if before.get(path) != text}


def _read_sources(folder):
    names = ("cutlass_fused", "include", "src", "tests")
    paths = [path for name in names for path in (folder / name).rglob("*.*") if path.is_file()]
    paths = [path for path in paths if path.suffix not in (".pyc", ".so")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def run_python(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{folder / 'src'}"}
    result = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def check_op_compiles(folder, op_file, archs):
    """For these architectures. Raises SystemExit where a tool is missing."""
    found = find_cuda_toolkit(), find_cutlass(), find_torch(), name_host_compiler()
    tools = Tools(*found, parse_architectures(archs))
    command = [tools.host_compiler, "-I", folder / "include", *cpp_flags(tools), *op_flags(tools)]
    command += ["-fsyntax-only", folder / op_file]
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
