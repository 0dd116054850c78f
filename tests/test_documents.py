"""The documents are true: examples run or compile, and what they name exists."""

import ast
import importlib
import inspect
import re
import shutil
import textwrap

import pytest
import torch
from calls import ALL_OPS

import cutlass_fused
from build_system.paths import ROOT
from cutlass_fused import _library, functional, nn
from gemm.kernels import EPILOGUES

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "third_party/README.md")
TEXTS = {name: (ROOT / name).read_text() for name in DOCUMENTS}
README, CONTRIBUTING = TEXTS["README.md"], TEXTS["CONTRIBUTING.md"]
each_document = pytest.mark.parametrize("document", DOCUMENTS)


def list_blocks(text, language):
    """The fenced blocks of one language, without the indentation of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for _, block in found]


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
TO_WRITE |= {"include/cutlass_fused/rms_norm.hpp", "src/ops/rms_norm.cpp"}
TO_WRITE |= {"include/cutlass_fused/kernel/run_rms_norm.cuh"}
PLACES = {"third_party/cutlass", "build/bench", "cutlass_library/source"}
PLACES |= {"include/cutlass/version.h", "LICENSE.txt"}  # in a checkout of CUTLASS
FOLDERS = ("bench", "cutlass_fused", "include", "src", "tests", "third_party")
FILES = [str(path.relative_to(ROOT)) for f in FOLDERS for path in (ROOT / f).rglob("*.*")]
FILE_NAME = r"(?:[\w-]+/)*[\w-]+\.(?:py|hpp|cuh|cpp|cu|h|md|txt|toml|so)"


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
    # A place in a document is none in the repository.
    paths = {path for path in list_paths(TEXTS[document]) if not path.startswith("#")}
    paths -= TO_WRITE | PLACES
    assert document not in ("README.md", "CONTRIBUTING.md") or len(paths) > 5
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
def test_anchors_exist(document):
    titles = re.findall(r"^#+ (.*)$", TEXTS[document], re.MULTILINE)
    anchors = {"#" + title.lower().replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\((#[^)]*)\)", TEXTS[document])) <= anchors


@each_document
def test_make_targets_exist(document):
    named = re.findall(r"(?:`|^    )(?:\w+=\S+ )*make ([a-z]+)", TEXTS[document], re.MULTILINE)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named) <= set(targets)
    assert document != "README.md" or {"demo", "test"} <= set(named)


def test_changelog_has_this_version():
    assert f"## [{cutlass_fused.__version__}]" in TEXTS["CHANGELOG.md"]


# What CONTRIBUTING.md says is to be changed or called in these files.
PLACES_TO_CHANGE = {
    "src/gemm/kernels.py": "EPILOGUES MATHS STANDALONE TYPES",
    "src/ops/dispatch.hpp": "run_product",
    "src/ops/checks.hpp": "Precision check_precision",
    "src/ops/checks.cpp": "to_data_type to_scalar_type dtype_string",
    "src/ops/rows.hpp": "for_type",
    "src/ops/batch_statistics.cpp": "compute_statistics run_column_statistics run_merge_statistics",
    "include/cutlass_fused/types.hpp": "DataType size_of Vector",
    "include/cutlass_fused/math.hpp": "Engine kIn kOut",
    "include/cutlass_fused/batch_norm.hpp": "run_normalize",
    "include/cutlass_fused/row_softmax.hpp": "run_normalized_row_softmax run_row_softmax",
    "include/cutlass_fused/gemm/gemm_sm80.hpp": "ElementOf kRepair",
    "include/cutlass_fused/gemm/tiles_sm80.hpp": "TilesSm80 TilesSm80Split TilesSm80For",
    "include/cutlass_fused/gemm/choice.hpp": "operand_alignment",
    "include/cutlass_fused/kernel/gemm_simt.cuh": "store_from_float",
    "include/cutlass_fused/kernel/merge_statistics.cuh": "move_running",
    "include/cutlass_fused/kernel/piece.cuh": "StorageOf to_float round_to Piece",
    "cutlass_fused/_library.py": "_TENSOR_OPS",
    "cutlass_fused/precision.py": "PRECISIONS",
    "cutlass_fused/checks.py": "KERNEL_DTYPES",
    "cutlass_fused/reference/__init__.py": "__all__",
    "bench/ncu_names.py": "DATA_TYPES",
    "bench/layers.py": "LAYERS",
    "tests/calls.py": "OPS ARGUMENTS Call STATISTICS_OPS ALL_OPS RESULTS",
    "tests/cases.py": "make_call NUMERICS",
    "tests/cases_statistics.py": "_NUMERICS make_statistics_call make_special_statistics_call",
    "tests/eager_statistics.py": "run_eager_all",
    "tests/accuracy.py": "TAIL_ROUNDINGS _eager_tail eager_product matmul_settings bound_error "
    "bound_eager",
    "tests/accuracy_statistics.py": "_bound_results",
    "tests/bad_calls.py": "make_good make_bad_vectors",
    "tests/test_built_code.py": "STANDALONE",
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
    ops = "".join(path.read_text() for path in (ROOT / "src/ops").glob("*.cpp"))
    for op in ALL_OPS:
        assert f'constexpr char kOp[] = "{op}";' in ops
        assert re.search(rf'm\.impl\("{op}",\s+TORCH_BOX\(&{op}\)\)', ops)
