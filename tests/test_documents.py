"""The documents are true: examples run or compile, and what they name exists."""

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import textwrap

import pytest
import torch
from calls import OPS

import cutlass_fused
from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cpp_flags, cuda_flags, op_flags
from build_system.generated_sources import write_schemas
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import find_torch
from cutlass_fused import _library, functional, nn, reference
from gemm.kernels import EPILOGUES, MATHS

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "third_party/README.md")
TEXTS = {name: (ROOT / name).read_text() for name in DOCUMENTS}
README, CONTRIBUTING = TEXTS["README.md"], TEXTS["CONTRIBUTING.md"]
each_document = pytest.mark.parametrize("document", DOCUMENTS)


def list_blocks(text, language):
    """The fenced blocks of one language, without the indentation of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for _, block in found]


def find_block(language, part):
    """The one block of CONTRIBUTING.md that holds `part`."""
    (block,) = (block for block in list_blocks(CONTRIBUTING, language) if part in block)
    return block


# ---- README.md ----

EXAMPLES = list_blocks(README, "python")


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(example):
    if "torch.compile(" in example and shutil.which("c++") is None:
        pytest.skip("inductor needs a host compiler")
    if ".cuda()" in example and torch.cuda.is_available() and _library.load_error() is not None:
        pytest.skip(f"the compiled library is not loaded: {_library.load_error()}")
    torch.compiler.reset()
    exec(compile(example, "README.md", "exec"), {})
    torch.compiler.reset()


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
    assert {"functional", "nn", "show_config"} <= set(re.findall(r"\w+", "".join(EXAMPLES)))


def test_results_are_filled_in():
    assert "MEASURED_" not in README


def resolve(name):
    """The object behind a dotted name."""
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    for i, part in enumerate(rest):
        if not hasattr(found, part):
            importlib.import_module(".".join([first, *rest[: i + 1]]))
        found = getattr(found, part)
    return found


@each_document
def test_dotted_names_exist(document):
    prose = re.sub(r"^ *```.*?^ *```$", "", TEXTS[document], flags=re.DOTALL | re.MULTILINE)
    for name in re.findall(r"(?<![\w/.])((?:torch|cutlass_fused)(?:\.[A-Za-z_]\w*)+)", prose):
        if not re.search(r"\.(hpp|py|so)$", name):
            resolve(name)


def test_public_names_are_told():
    for module in (functional, nn):
        for name, value in vars(module).items():
            public = inspect.isclass(value) or inspect.isfunction(value)
            if public and value.__module__ == module.__name__ and not name.startswith("_"):
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
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", README, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"[A-Z_]+", row)}
    assert told == read_in_code()
    used = set(re.findall(r"\b([A-Z]+(?:_[A-Z]+)+)=", "".join(TEXTS.values())))
    assert used <= told | {"PYTORCH_NO_CUDA_MEMORY_CACHING"}


def test_messages_are_those_of_the_code():
    quoted = re.findall(r"`linear: (.*?)`", README)
    code = (ROOT / "src/ops/device.cpp").read_text() + inspect.getsource(_library)
    code = re.sub(r'"\s*,?\s*"', "", code)  # literals that are continued
    old, foreign, missing, shape = quoted
    assert old.removesuffix("...") in code
    assert missing.removesuffix("...") in code.replace("{name}: ", "")
    for part in re.split(r"8\.6|\.\.\.", foreign):
        assert part in code
    with pytest.raises(RuntimeError, match=re.escape(f"linear: {shape}")):
        functional.linear(torch.ones(2, 512), torch.ones(256, 500))


def test_log_line_is_that_of_the_code():
    (line,) = re.findall(r"`(cutlass_fused: sm80 [^`]*)`", README)
    source = (ROOT / "include/cutlass_fused/gemm/choice.hpp").read_text()
    (form,) = re.findall(r'"(cutlass_fused: .*?)\\n"', source)
    *_, tile = re.fullmatch(re.sub("%s|%lld", r"(\\S+)", form), line).groups()
    tiles = (ROOT / "include/cutlass_fused/gemm/tiles_sm80.hpp").read_text()
    assert f"TileSm80<{tile.removesuffix('B').replace('x', ', ')}," in tiles


# ---- what any document names ----

# Files that CONTRIBUTING.md tells to write, and places that are filled by who builds or measures.
TO_WRITE = {"include/cutlass_fused/epilogue/prelu.hpp", "src/ops/linear_prelu.cpp"}
PLACES = {"third_party/cutlass", "build/bench", "bench/results/h200", "cutlass_library/source"}
PLACES |= {"include/cutlass/version.h", "LICENSE.txt"}  # in a checkout of CUTLASS
FOLDERS = ("bench", "cutlass_fused", "include", "src", "tests", "third_party")
FILES = [str(path.relative_to(ROOT)) for f in FOLDERS for path in (ROOT / f).rglob("*.*")]
FILE_NAME = r"(?:[\w-]+/)*[\w-]+\.(?:py|hpp|cuh|cpp|h|md|txt|toml|so)"


def list_paths(text):
    """Names of files and folders, outside of the examples and addresses."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"https?://[^\s)]+", "", text)
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    return links | set(
        re.findall(rf"(?<![\w./-])({FILE_NAME}|[\w-]+/[\w/-]*)(?![\w*.-]*[\w*])", text)
    )


@each_document
def test_paths_exist(document):
    paths = list_paths(TEXTS[document]) - TO_WRITE - PLACES
    assert document not in ("README.md", "CONTRIBUTING.md") or len(paths) > 10
    missing = [
        path
        for path in paths
        if not (ROOT / path).exists() and not any(f.endswith(f"/{path}") for f in FILES)
    ]
    assert not missing


def test_files_to_write_are_not_there():
    """Once they are, the recipe needs another example."""
    assert list_paths(CONTRIBUTING) >= TO_WRITE
    assert not [path for path in TO_WRITE if (ROOT / path).exists()]


@each_document
def test_make_targets_exist(document):
    named = re.findall(r"(?:`|^    )(?:\w+=\S+ )*make ([a-z]+)", TEXTS[document], re.MULTILINE)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named) <= set(targets)
    assert document != "README.md" or {"demo", "test"} <= set(named)


def test_changelog_has_this_version():
    assert f"## [{cutlass_fused.__version__}]" in TEXTS["CHANGELOG.md"]


# What CONTRIBUTING.md says is to be changed in these files.
PLACES_TO_CHANGE = {
    "src/gemm/kernels.py": "EPILOGUES MATHS",
    "src/ops/dispatch.hpp": "run_linear",
    "src/ops/checks.hpp": "Precision check_precision",
    "src/ops/checks.cpp": "to_data_type to_scalar_type dtype_string",
    "include/cutlass_fused/types.hpp": "DataType size_of Vector",
    "include/cutlass_fused/math.hpp": "Engine kIn kOut",
    "include/cutlass_fused/gemm/gemm_sm80.hpp": "ElementOf kRepair",
    "include/cutlass_fused/gemm/tiles_sm80.hpp": "TilesSm80 TilesSm80Split TilesSm80For",
    "include/cutlass_fused/gemm/choice.hpp": "operand_alignment",
    "include/cutlass_fused/kernel/gemm_simt.cuh": "store_from_float",
    "cutlass_fused/_library.py": "_TENSOR_OPS",
    "cutlass_fused/precision.py": "PRECISIONS",
    "cutlass_fused/checks.py": "KERNEL_DTYPES",
    "tests/calls.py": "OPS ARGUMENTS Call",
    "tests/cases.py": "make_call NUMERICS",
    "tests/accuracy.py": "TAIL_ROUNDINGS _eager_tail _eager_product matmul_settings bound_error "
    "bound_eager",
    "tests/bad_calls.py": "make_good make_bad_vectors",
}


@pytest.mark.parametrize("path", PLACES_TO_CHANGE)
def test_places_to_change_exist(path):
    assert path in CONTRIBUTING or path.removeprefix("include/cutlass_fused/") in CONTRIBUTING
    for name in PLACES_TO_CHANGE[path].split():
        assert f"`{name}`" in CONTRIBUTING
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text())


def test_every_epilogue_and_op_follows_the_recipe():
    host = (ROOT / "tests/host/evaluate_epilogue.cpp").read_text()
    for name, header in EPILOGUES.items():
        assert f'#include "{header}"' in host and f"evaluate<{name}>" in host
    for op in OPS:
        assert (ROOT / f"src/ops/{op}.cpp").is_file()


# ---- the recipes of CONTRIBUTING.md ----

PRELU, LINEAR_PRELU = find_block("cpp", "struct PReLU"), find_block("cpp", "kOp[]")
TILE, TILE_NAME = find_block("cpp", "TileSm80<"), "256x128x64B"
ROW, ENGINE = find_block("cpp", "struct Fp32Bf16"), find_block("cpp", "struct EngineSm80")


@pytest.fixture(scope="module")
def tools():
    try:
        torch_found = find_torch()
        return Tools(find_cuda_toolkit(), find_cutlass(), torch_found, name_host_compiler(), [])
    except SystemExit as missing:
        pytest.skip(str(missing))


@pytest.fixture
def include(tmp_path):
    """The headers that the recipes write, to be found before those of the repository."""
    folder = tmp_path / "cutlass_fused"
    (folder / "epilogue").mkdir(parents=True)
    (folder / "epilogue/prelu.hpp").write_text(PRELU)
    math = (ROOT / "include/cutlass_fused/math.hpp").read_text()
    math = math.replace("enum class Engine {", "enum class Engine { kBf16,")
    end = math.rindex("}  // namespace")
    (folder / "math.hpp").write_text(math[:end] + ROW + math[end:])
    return tmp_path


def run(*command):
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_epilogue_and_tile_on_the_host(tools, include):
    tile = TILE.partition("//")[0].strip().rstrip(",")
    source = f"""
    #include <cstdio>
    #include "cutlass_fused/epilogue/evaluate.hpp"
    #include "cutlass_fused/epilogue/prelu.hpp"
    #include "cutlass_fused/gemm/tiles_sm80.hpp"
    using namespace cutlass_fused;
    int main() {{
      PReLU::Args const args{{Vector::constant(1.0f), Vector::constant(0.25f)}};
      std::printf("%g %g ", evaluate<PReLU>(args, 2.0f, 0, 0), evaluate<PReLU>(args, -5.0f, 0, 0));
      std::printf("%s\\n", TileList<{tile}>::kShapes[0].name().c_str());
    }}
    """
    (include / "main.cpp").write_text(source)
    flags = [f for f in cpp_flags(tools) if f != "-O2"]
    program = include / "main"
    run(tools.host_compiler, "-I", include, *flags, include / "main.cpp", "-o", program)
    assert run(program).split() == ["3", "-1", TILE_NAME]
    assert f'force_tile("{TILE_NAME}")' in CONTRIBUTING


def test_op_compiles(tools, include):
    (include / "op.cpp").write_text(LINEAR_PRELU)
    flags = [*cpp_flags(tools), *op_flags(tools)]
    run(tools.host_compiler, "-I", include, *flags, "-fsyntax-only", include / "op.cpp")


def test_element_type_compiles(tools, include):
    """The types of the kernel; compiling the kernel itself would take most of a minute."""
    tile = re.search(r"TileSm80<.*?>", TILE)[0]
    source = f"""
    #include "cutlass_fused/gemm/gemm_sm80.hpp"
    #include "cutlass_fused/epilogue/prelu.hpp"
    namespace cutlass_fused {{
    {ENGINE}
    static_assert(GemmSm80<{tile}, Fp32Bf16, PReLU, 16>::kThreads == 256);
    }}
    """
    (include / "type.cu").write_text(source)
    command = [tools.toolkit.nvcc, "-I", include, *cuda_flags(tools), "-arch=compute_80", "-ptx"]
    run(*command, include / "type.cu", "-o", include / "type.ptx")


def test_definition_and_schema(tmp_path):
    schema = torch._C.parse_schema(f"cutlass_fused::{find_block('text', 'linear_prelu').strip()}")
    namespace = dict(vars(reference))
    exec(find_block("python", "def linear_prelu"), namespace)
    function = namespace["linear_prelu"]
    names = [argument.name for argument in schema.arguments]
    assert list(inspect.signature(function).parameters) == names
    parameters = re.search(r"Tensor linear_prelu\((.*?)\)", LINEAR_PRELU, re.DOTALL)[1]
    assert [parameter.split()[-1] for parameter in parameters.split(",")] == names
    x, weight, bias, slopes = (torch.randn(size) for size in ((4, 5), (3, 5), (3,), (3,)))
    expected = torch.nn.functional.prelu(x @ weight.T + bias, slopes)
    torch.testing.assert_close(function(x, weight, bias, slopes), expected)
    (tmp_path / "schemas.txt").write_text(find_block("text", "linear_prelu"))
    write_schemas(tmp_path / "schemas.txt", tmp_path)
    assert (tmp_path / "schemas.inc").read_text().startswith('m.def("linear_prelu(')


def test_rows_have_the_form_of_their_tables():
    for table, part in ((EPILOGUES, '"PReLU":'), (MATHS, '"Fp32Bf16":')):
        ((key, value),) = ast.literal_eval(f"{{{find_block('python', part)}}}").items()
        assert key not in table and {type(row) for row in table.values()} == {type(value)}
        assert f"struct {key} " in PRELU + ROW
