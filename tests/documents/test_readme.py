"""README.md, docs/ and src/README.md are true: examples run, what they tell is in the code."""

import ast
import inspect
import re
import shutil
import subprocess

import pytest
import torch
from calls import ALL_OPS
from documents import BUILDING, PAGES, README, TEXTS, list_blocks, remove_blocks

import cutlass_fused
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import find_torch
from cutlass_fused import _library, functional, nn

FOR_USERS = {"README.md": README} | PAGES
EXAMPLES = {
    f"{name}-{i}": example
    for name, text in FOR_USERS.items()
    for i, example in enumerate(list_blocks(text, "python"))
}
LIMITS, PROFILING = PAGES["docs/limits.md"], PAGES["docs/profiling.md"]
# At 200 words a minute five minutes are a thousand.
MOST_WORDS = 1000
MOST_LINES = 200  # of README.md


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_example_runs(example, monkeypatch, tmp_path):
    monkeypatch.setenv("CUTLASS_FUSED_CACHE_DIR", str(tmp_path))
    if re.search(r"torch\.compile\(|aoti_compile", example) and shutil.which("c++") is None:
        pytest.skip("inductor needs a host compiler")
    if ".cuda()" in example and torch.cuda.is_available() and _library.load_error() is not None:
        pytest.skip(f"the compiled library is not loaded: {_library.load_error()}")
    torch.compiler.reset()
    exec(compile(example, "the example", "exec"), {})
    torch.compiler.reset()


def test_cpp_example_compiles(tmp_path):
    """Against the headers of torch alone, as a program that embeds a package does."""
    if shutil.which(name_host_compiler()) is None:
        pytest.skip(f"there is no C++ compiler {name_host_compiler()}")
    (example,) = list_blocks(PAGES["docs/deployment.md"], "cpp")
    (tmp_path / "example.cpp").write_text(example)
    command = [name_host_compiler(), "-std=c++17", "-Wall", "-Werror", "-fsyntax-only"]
    command += ["-isystem", find_torch().include, tmp_path / "example.cpp"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_examples():
    assert len(EXAMPLES) >= 12 and len(list_blocks(README, "python")) >= 2
    words = set(re.findall(r"\w+", "".join(EXAMPLES.values())))
    assert set(cutlass_fused.__all__) - {"__version__"} <= words


def test_readme_is_short():
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", FOR_USERS)
def test_page_is_read_in_five_minutes(page):
    """Code and tables are looked up, not read."""
    prose = remove_blocks(FOR_USERS[page])
    prose = re.sub(r"<!-- results: .*?<!-- end -->", "", prose, flags=re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "    "))]
    assert len(" ".join(lines).split()) <= MOST_WORDS


def test_public_names_are_told():
    for module in (functional, nn):
        public = {name for name, value in vars(module).items() if inspect.isroutine(value)}
        public |= {name for name, value in vars(module).items() if inspect.isclass(value)}
        assert public == set(module.__all__)
        for name in public:
            assert f"`{module.__name__}.{name}`" in README
    for name in cutlass_fused.__all__:
        assert name in README or name == "__version__"


READERS = ("os.environ.get", "os.getenv")


def read_in_python(path):
    """The names of the environment variables that a module reads."""
    tree = ast.parse(path.read_text())
    literals = {}  # what a name is bound to, by assignment or by a loop over literals
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        else:
            continue
        texts = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
        literals |= {target.id: texts for target in targets if isinstance(target, ast.Name)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            key = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in READERS:
            key = node.args[0]
        else:
            continue
        names |= {key.value} if isinstance(key, ast.Constant) else set(literals[key.id])
    return names


def read_in_code():
    names = set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for folder in ("src", "cutlass_fused", "bench", "include"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix == ".py":
                names |= read_in_python(path)
            elif path.suffix in (".hpp", ".cuh", ".cpp", ".cu"):
                names |= set(re.findall(r'getenv\("(\w+)"\)', path.read_text()))
    return names | read_in_python(ROOT / "setup.py")


def test_variables_are_those_that_are_read():
    rows = re.findall(r"^\| ((?:`[A-Z0-9_]+`(?:, )?)+) \|", BUILDING, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"[A-Z0-9_]+", row)}
    assert told == read_in_code()
    used = set(re.findall(r"\b([A-Z]+(?:_[A-Z]+)+)=", "".join(TEXTS.values())))
    assert used <= told | {"PYTORCH_NO_CUDA_MEMORY_CACHING", "CUTLASS_FUSED_TEST_TILE"}


def test_messages_are_those_of_the_code():
    quoted = re.findall(r"`linear: (.*?)`", LIMITS)
    code = (ROOT / "src/checks/device.cpp").read_text() + inspect.getsource(_library)
    code = re.sub(r'"\s*,?\s*"', "", code)  # literals that are continued
    old, foreign, missing, shape = quoted
    assert old.removesuffix("...") in code
    assert missing.removesuffix("...") in code.replace("{name}: ", "")
    for part in re.split(r"8\.6|\.\.\.", foreign):
        assert part in code
    with pytest.raises(RuntimeError, match=re.escape(f"linear: {shape}")):
        functional.linear(torch.ones(2, 512), torch.ones(256, 500))


def test_log_lines_are_those_of_the_code():
    """And name tiles of the tables, ops, and what else belongs to a plan."""
    include = ROOT / "include/cutlass_fused"
    (form,) = re.findall(
        r'"(cutlass_fused: .*?)\\n"', (ROOT / "src/launch/log_plan.cpp").read_text()
    )
    form = re.sub("%s|%lld", r"(\\S+)", form).removesuffix(r"(\S+)") + "(.*)"
    parts = re.findall(r'"; ([^"]+)"', (include / "plan/describe.hpp").read_text())
    rows = re.findall(r"^\| (`.*`) \| .* \|$", PROFILING.partition("## What was launched")[2], re.M)
    told = [part for row in rows for part in re.findall(r"`([^`]+)`", row)]
    assert sorted(told) == sorted(parts)
    lines = re.findall(r"`(cutlass_fused: sm\d+ [^`]*)`", PROFILING)
    assert len(lines) == 2
    for line in lines:
        arch, _, op, *_, plan = re.fullmatch(form, line).groups()
        assert op in ALL_OPS
        kernel, *others = plan.split("; ")
        assert set(others) <= set(parts)
        tile, *raster = kernel.split("@")
        # 128x192x128B/2x1.cooperative: numbers, then the names of values of enumerations
        shape, *words = tile.split(".")
        numbers = ", ".join(re.findall(r"\d+", shape))
        tiles = (include / f"gemm/{arch}/tiles.hpp").read_text()
        rows = re.findall(rf"(?:Row|TileSm80)<{numbers}, ([^>]*)>", tiles)
        values = [set(re.findall(r"\bk(\w+)", row.lower())) for row in rows]
        assert any(set(words) <= found for found in values), line
        assert arch == "sm80" or re.fullmatch("[mn][1248]", raster[0])
