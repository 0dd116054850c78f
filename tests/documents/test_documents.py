"""What the documents name exists: objects, files, links, make targets; recipes fit the code."""

import importlib
import re

import pytest
from calls import ALL_OPS, name_in_messages
from documents import CONTRIBUTING, RECIPES, TEXTS, remove_blocks
from named_paths import FILES, PLACES, TO_WRITE, list_paths

import cutlass_fused
from build_system.paths import ROOT
from cutlass_fused.epilogues import EPILOGUES as DESCRIPTIONS
from kernels.table import EPILOGUES

each_document = pytest.mark.parametrize("document", TEXTS)
# What tells people where things are and what to change.
GUIDE = CONTRIBUTING + RECIPES


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
    names = r"(?<![\w/.])((?:torch|cutlass_fused)(?:\.[A-Za-z_]\w*)+)"
    for name in re.findall(names, remove_blocks(TEXTS[document])):
        if not re.search(r"\.(hpp|py|so)$", name):
            resolve(name)


def list_links(text):
    return re.findall(r"\]\((?!https?://)([^)]+)\)", remove_blocks(text))


def is_part(path, file):
    """Whether a file is the one of this path, or in the folder, both without what stands above."""
    return f"/{path}" in file if path.endswith("/") else file.endswith(f"/{path}")


@each_document
def test_paths_exist(document):
    # A place in a document is none in the repository.
    paths = list_paths(TEXTS[document]) - TO_WRITE - PLACES
    assert document not in ("README.md", "CONTRIBUTING.md") or len(paths) > 5
    missing = [
        path
        for path in paths
        if not (ROOT / path).exists() and not any(is_part(path, f) for f in FILES)
    ]
    assert not missing


def list_anchors(text):
    """What GitHub calls the headings."""
    titles = re.findall(r"^#+ (.*)$", remove_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@each_document
def test_links_lead_somewhere(document):
    """From the folder of the document."""
    dead = []
    for link in list_links(TEXTS[document]):
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists() or (anchor and anchor not in list_anchors(target.read_text())):
            dead.append(link)
    assert not dead


def test_every_document_is_linked_from_the_first():
    """In one step or more."""
    found, new = set(), {"README.md"}
    while new:
        found |= new
        links = {(name, link.partition("#")[0]) for name in new for link in list_links(TEXTS[name])}
        paths = {((ROOT / name).parent / link).resolve() for name, link in links if link}
        new = {str(path.relative_to(ROOT)) for path in paths} & TEXTS.keys() - found
    assert found | {"CHANGELOG.md"} == TEXTS.keys()


def test_files_to_write_are_not_there():
    """Once they are, the recipe needs another example."""
    assert list_paths(RECIPES) >= TO_WRITE
    assert not [path for path in TO_WRITE if (ROOT / path).exists()]


@each_document
def test_make_targets_exist(document):
    named = re.findall(r"(?:`|^    )(?:\w+=\S+ )*make ([a-z]+)", TEXTS[document], re.MULTILINE)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(named) <= set(targets)
    assert document != "README.md" or {"demo", "test"} <= set(named)


def test_changelog_has_this_version():
    assert f"## [{cutlass_fused.__version__}]" in TEXTS["CHANGELOG.md"]


# What the guide says is to be changed or called in these files.
PLACES_TO_CHANGE = {
    "src/kernels/table.py": "EPILOGUES ARCHS SCHEDULES STANDALONE TYPES MATHS_OF_SPLIT_ROWS "
    "MATHS_OF_PAIRS",
    "cutlass_fused/epilogues/_description.py": "Row RowOrScalar Number",
    "cutlass_fused/row_ops/_description.py": "Row Number out_dtype plain bound",
    "src/launch/product.hpp": "run_linear",
    "src/launch/product.cpp": "launch_product find_refused",
    "src/launch/linear_batch_norm_train.cpp": "run_linear_train",
    "src/checks/checks.cpp": "kScalarTypeOf",
    "src/launch/batch_statistics.cpp": "compute_statistics run_column_statistics "
    "run_merge_statistics",
    "include/cutlass_fused/common/types.hpp": "Vector",
    "include/cutlass_fused/common/data_type.hpp": "CUTLASS_FUSED_DATA_TYPES TypeTraits for_type "
    "size_of to_float",
    "include/cutlass_fused/common/math.hpp": "CUTLASS_FUSED_MATH_ROWS Engine splits_rows "
    "CUTLASS_FUSED_PRECISIONS",
    "include/cutlass_fused/norm/batch_norm.hpp": "run_normalize",
    "include/cutlass_fused/softmax/row_softmax.hpp": "run_normalized_row_softmax run_row_softmax",
    "include/cutlass_fused/common/element.hpp": "ElementOf",
    "include/cutlass_fused/gemm/sm80/kernel.hpp": "EngineSm80",
    "include/cutlass_fused/gemm/sm80/tiles.hpp": "TilesSm80 TilesSm80Fp16x3 TilesSm80For "
    "tiles_sm80 can_find_statistics",
    "include/cutlass_fused/gemm/sm90/tiles.hpp": "Tiles ScheduleSm90 Operands TilesSm90For "
    "tiles_sm90",
    "include/cutlass_fused/gemm/sm80/spec.hpp": "spec_sm80 tile_cost operand_alignment",
    "include/cutlass_fused/gemm/sm90/estimates.hpp": "tile_cost_sm90 can_serve cost_of_power",
    "include/cutlass_fused/common/arch.hpp": "CUTLASS_FUSED_ARCH_ROWS",
    "include/cutlass_fused/plan/archs.hpp": "spec_of",
    "include/cutlass_fused/plan/arch_spec.hpp": "ArchSpec",
    "include/cutlass_fused/plan/plan_batch_norm.hpp": "plan_batch_norm",
    "include/cutlass_fused/gemm/sm90_batch_norm/tiles.hpp": "statistics_tile_sm90",
    "include/cutlass_fused/plan/make_plan.hpp": "make_plan choose_math find_refused",
    "include/cutlass_fused/plan/plan.hpp": "Plan Tail NormBy kColumns kProductStatistics kOnChip "
    "kGroup kStrips",
    "include/cutlass_fused/plan/plan_key.hpp": "make_plan_key",
    "include/cutlass_fused/plan/choose_product.hpp": "choose_product choose_cheapest",
    "include/cutlass_fused/common/store.cuh": "store_from_float",
    "include/cutlass_fused/common/piece.cuh": "round_to Piece",
    "include/cutlass_fused/common/packed_piece.cuh": "pack unpack find_max",
    "cutlass_fused/precision.py": "PRECISIONS",
    "cutlass_fused/checks.py": "KERNEL_DTYPES",
    "bench/nsight/ncu_names.py": "DATA_TYPES",
    "bench/cases/layers.py": "LAYERS",
    "tests/helpers/calls/calls.py": "OPS STATISTICS_OPS ALL_OPS",
    "tests/helpers/calls/cases.py": "make_call NUMERICS",
    "tests/helpers/calls/cases_statistics.py": "make_statistics_call make_special_statistics_call",
    "tests/helpers/judges/eager_statistics.py": "run_eager_all",
    "tests/helpers/judges/accuracy.py": "TAIL_ROUNDINGS PRODUCT_ERRORS matmul_settings bound_error",
    "tests/helpers/judges/accuracy_statistics.py": "_bound_results",
    "tests/kernels/test_built_code.py": "STANDALONE",
}


@pytest.mark.parametrize("path", PLACES_TO_CHANGE)
def test_places_to_change_exist(path):
    assert path in GUIDE or path.removeprefix("include/cutlass_fused/") in GUIDE
    for name in PLACES_TO_CHANGE[path].split():
        assert f"`{name}`" in GUIDE
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text())


def test_every_epilogue_and_op_follows_the_recipe():
    """Each has a description, by which its functor is tested."""
    described = {epilogue.functor.struct for epilogue in DESCRIPTIONS.values()}
    assert described == EPILOGUES.keys()
    ops = "".join(path.read_text() for path in (ROOT / "src/ops").rglob("*.cpp"))
    for op in ALL_OPS:
        assert f'constexpr char kOp[] = "{name_in_messages(op)}";' in ops
        assert re.search(rf'm\.impl\("{op}",\s+TORCH_BOX\(&{op}\)\)', ops)
