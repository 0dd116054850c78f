"""Every public header compiles alone, and none knows torch.

A header that stands in a file behind others finds there what it would alone, if it includes them,
and all that they include, itself. So one compilation is enough for a chain of headers, all for one
architecture.
"""

import itertools
import os
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
OWN_ARCHS = {"sm90": "compute_90a", "sm100": "compute_100a"}
INCLUDED = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def choose_arch(header):
    return next((arch for word, arch in OWN_ARCHS.items() if word in header), "compute_80")


def find_closures(texts):
    """{header: itself and all that it includes, at any depth}"""
    closures = {}

    def find(header):
        if header not in texts:
            return {header}  # not ours
        if header not in closures:
            inner = map(find, INCLUDED.findall(texts[header]))
            closures[header] = {header}.union(*inner)
        return closures[header]

    for header in texts:
        find(header)
    return closures


def arrange_chains(texts):
    """As few lists as hold each header once, behind headers that it includes with all of theirs:
    each gets the next one of a maximum matching."""
    closures = find_closures(texts)
    ordered = sorted(texts, key=lambda header: (len(closures[header]), header))
    behind = {
        a: [b for b in ordered if closures[a] < closures[b] and choose_arch(a) == choose_arch(b)]
        for a in ordered
    }
    before = {}

    def match(header, seen):
        for each in behind[header]:
            if each not in seen:
                seen.add(each)
                if each not in before or match(before[each], seen):
                    before[each] = header
                    return True
        return False

    for header in ordered:
        match(header, set())
    chains = []
    for header in texts.keys() - before.values():  # the last of each
        chain = [header]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        chains.append(chain[::-1])
    return sorted(chains)


TEXTS = {header: (INCLUDE / header).read_text() for header in HEADERS}
CHAINS = {chain[-1]: chain for chain in arrange_chains(TEXTS)}


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
        arch = f"-arch={choose_arch(name)}"
        command = [tools.toolkit.nvcc, *cuda_flags(tools), arch, "-ptx", source]
        command += ["-o", source.with_suffix(".ptx")]
        return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)

    return compile_source


@pytest.fixture(scope="module")
def compile_chain(compile_source, request):
    """All selected chains at once, on every core; in one of several processes that run tests, each
    when it is asked for. Included twice: a missing guard is an error."""

    def compile_now(last):
        return compile_source(last, write_includes(CHAINS[last]))

    if "PYTEST_XDIST_WORKER" in os.environ:
        yield compile_now
        return
    selected = {
        item.callspec.params["last"]
        for item in request.session.items
        if item.module is request.module and hasattr(item, "callspec")
        if "last" in item.callspec.params
    }
    with ThreadPoolExecutor(choose_jobs()) as pool:
        futures = {last: pool.submit(compile_now, last) for last in CHAINS if last in selected}
        yield lambda last: futures[last].result()
        pool.shutdown(cancel_futures=True)


def write_includes(chain):
    return "".join(f'#include "{header}"\n' for header in chain) * 2


@pytest.mark.parametrize("last", CHAINS)
def test_headers_compile_alone(compile_chain, last):
    result = compile_chain(last)
    assert result.returncode == 0, f"{CHAINS[last]}: {result.stdout}{result.stderr}"


def test_every_header_is_in_a_chain_and_finds_there_what_it_would_alone():
    assert sorted(sum(CHAINS.values(), [])) == HEADERS
    closures = find_closures(TEXTS)
    for chain in CHAINS.values():
        for header, following in itertools.pairwise(chain):
            assert header in closures[following] and closures[header] <= closures[following]
            assert choose_arch(header) == choose_arch(following)


def test_a_header_that_leans_on_what_stands_before_is_in_no_chain_behind_it():
    texts = {
        "a.hpp": "#include <vector>\n",
        "b.hpp": "std::vector<int> leans_on_a();\n",
        "c.hpp": '#include "a.hpp"\n#include "b.hpp"\n',
        "d.hpp": '#include "a.hpp"\n',
    }
    assert arrange_chains(texts) == [["a.hpp", "d.hpp"], ["b.hpp", "c.hpp"]]


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
