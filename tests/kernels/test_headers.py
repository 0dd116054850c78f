"""Every public header compiles alone, and none knows torch.

Alone is also what another header includes in front of all else: where that one compiles, both do.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cuda_flags
from build_system.host_compiler import name_host_compiler
from build_system.jobs import choose_jobs
from build_system.paths import ROOT

INCLUDE = ROOT / "include"
HEADERS = sorted(
    str(path.relative_to(INCLUDE))
    for path in INCLUDE.rglob("*")
    if path.suffix in (".hpp", ".cuh", ".h")
)
FIRST_INCLUDE = re.compile(r'(?:\s|//.*|#pragma once\b)*#\s*include\s*"(cutlass_fused/[^"]+)"')


def list_compiled(texts):
    """The headers that no other one includes first, {header: text}."""
    matches = map(FIRST_INCLUDE.match, texts.values())
    return sorted(texts.keys() - {match[1] for match in matches if match})


TEXTS = {header: (INCLUDE / header).read_text() for header in HEADERS}
COMPILED = list_compiled(TEXTS)


@pytest.fixture(scope="module")
def compile_source(tmp_path_factory):
    """Parses and type-checks a source as the build would. PTX is the cheapest output for which nvcc
    runs a whole front end: a second or so, several times less than an object file takes."""
    try:
        tools = Tools(find_cuda_toolkit(), find_cutlass(), None, name_host_compiler(), [])
    except SystemExit as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("headers")

    def compile_source(name, text):
        source = folder / f"{name.replace('/', '_')}.cu"
        source.write_text(text)
        own = {"sm90": "compute_90a", "sm100": "compute_100a"}
        arch = next((arch for word, arch in own.items() if word in name), "compute_80")
        command = [tools.toolkit.nvcc, *cuda_flags(tools), f"-arch={arch}", "-ptx", source]
        command += ["-o", source.with_suffix(".ptx")]
        return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)

    return compile_source


@pytest.fixture(scope="module")
def compilations(compile_source, request):
    """All selected headers at once, on every core. Included twice: a missing guard is an error."""
    selected = {
        item.callspec.params["header"]
        for item in request.session.items
        if item.module is request.module and hasattr(item, "callspec")
    }
    with ThreadPoolExecutor(choose_jobs()) as pool:
        futures = {
            header: pool.submit(compile_source, header, f'#include "{header}"\n' * 2)
            for header in HEADERS
            if header in selected
        }
        yield futures
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("header", COMPILED)
def test_header_compiles_alone(compilations, header):
    result = compilations[header].result()
    assert result.returncode == 0, result.stdout + result.stderr


def test_headers_that_are_compiled():
    """One behind a declaration, or behind another include, is not in front of all else."""
    of = '#include "cutlass_fused/{}.hpp"\n'.format
    texts = {
        "cutlass_fused/a.hpp": "// Words.\n#pragma once\n\n" + of("b") + of("c"),
        "cutlass_fused/b.hpp": "#pragma once\n#include <vector>\n" + of("d"),
        "cutlass_fused/c.hpp": "#pragma once\nint one;\n" + of("d"),
        "cutlass_fused/d.hpp": "#pragma once\n",
    }
    assert list_compiled(texts) == [f"cutlass_fused/{name}.hpp" for name in "acd"]
    assert 0.5 * len(HEADERS) < len(COMPILED) < len(HEADERS)


@pytest.mark.parametrize("header", HEADERS)
def test_header_has_a_guard(header):
    """Which a second inclusion would show of what is compiled alone, and not of what that holds."""
    assert "\n#pragma once\n" in "\n" + TEXTS[header]


def test_missing_include_is_noticed(compile_source):
    result = compile_source("missing", "inline cutlass_fused::GemmArgs make_arguments();\n")
    assert result.returncode != 0


def test_headers_right_in_the_folder_forward_and_nothing_needs_them():
    """They keep old includes alive."""
    forwarding = sorted((INCLUDE / "cutlass_fused").glob("*.hpp"))
    assert forwarding
    for path in forwarding:
        lines = path.read_text().splitlines()
        (target,) = [line for line in lines if not re.match(r"//|#pragma once|$", line)]
        assert re.fullmatch(r'#include "cutlass_fused/\w+/[\w/]+\.hpp"', target), path
    names = {f'"cutlass_fused/{path.name}"' for path in forwarding}
    for folder in ("include", "src", "tests/host"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".hpp", ".cuh", ".cpp", ".cu", ".py"):
                assert not names & set(re.findall(r'#include ("[^"]+")', path.read_text())), path


@pytest.mark.parametrize("header", HEADERS)
def test_header_includes_no_torch(header):
    assert not re.search(r'#\s*include\s*[<"](torch|ATen|c10|aten|pybind11)\b', TEXTS[header])
