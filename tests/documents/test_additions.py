"""The table "What an addition touches" in CONTRIBUTING.md: each number is that of the files that
stand below it, and those are the files that the recipe names."""

import re

import pytest
from documents import CONTRIBUTING, ROOT, TEXTS
from named_paths import FILES, TO_WRITE, list_paths

SECTION = CONTRIBUTING.partition("## What an addition touches")[2].partition("\n## ")[0]
TABLE, _, LISTS = SECTION.partition("The files:\n")
NUMBERS = dict(re.findall(r"^\| ([^|]+?) \| (\d+)[^|]* \|", TABLE, re.MULTILINE))
ITEMS = dict(re.findall(r"^\* \*\*(.*?)\*\*(.*?)(?=^\* |\Z)", LISTS, re.MULTILINE | re.DOTALL))
ARCHITECTURE, BESIDE = "an architecture", "all that 9.0 has beside its products"

EPILOGUE, GEMM, NORM = (
    TEXTS[f"include/cutlass_fused/{folder}/README.md"] for folder in ("epilogue", "gemm", "norm")
)


def take(text, begin, end):
    """From a line that begins so to the next that begins so."""
    found = re.search(rf"^{begin}.*?(?=^{end}|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0]


TYPE = take(GEMM, "## An element type", "A type that is new in memory")
# Addition -> the text that tells it, and what that text names beside what is to be changed.
RECIPES = {
    "an epilogue, with op, module and gradient": (
        EPILOGUE,
        # A row, what a command writes, and what tells users.
        "src/kernels/table.py cutlass_fused/schemas.txt src/ops/linear_prelu.cpp README.md "
        "CHANGELOG.md "
        # Read, run, or for what a recipe cannot know.
        "_description.py _linear_scale_leaky_relu.py epilogue/bias.hpp test_recipe_epilogue.py "
        "test_headers.py test_built_code.py test_registry.py test_epilogues.py calls.py cases.py "
        "accuracy.py planted_faults.py test_scale_leaky_relu.py tests/gpu functional",
    ),
    "a tile for SM80 kernels": (
        take(GEMM, "### SM80", "### SM90"),
        "gemm/sm80/spec.hpp gemm/sm80/kernel.hpp test_choose_tile.py",
    ),
    "a tile for SM90 kernels": (
        take(GEMM, "### SM90", "### Either"),
        "gemm/sm90/estimates.hpp gemm/sm90/columns_ahead.hpp src/kernels/table.py "
        "test_choose_sm90.py test_sm90.py",
    ),
    "a Math row": (
        take(TYPE, r"1\. ", r"2\. ") + take(TYPE, r"4\. ", "For SM90"),
        # What reads the row, and what fails until the library is built.
        "src/kernels/table.py test_built_code.py tests/gpu",
    ),
    "its engine, if that is new": (
        take(TYPE, r"2\. ", r"3\. ") + take(TYPE, "For SM90", "#"),
        "tests/host math.hpp gemm/sm90/kernel.hpp",
    ),
    "its word for `precision`, if that is new": (take(TYPE, r"3\. ", r"4\. "), ""),
    "a type that is new in memory": (
        take(GEMM, "A type that is new in memory", "#"),
        "gemm/sm80/spec.hpp",
    ),
    ARCHITECTURE: (
        take(GEMM, "## An architecture", "Eleven more places"),
        # Its own folder, the newest that has all, what reads the row, and tests.
        "gemm/sm100/ gemm/sm100/tiles.hpp gemm/sm100/kernel.hpp gemm/sm100/launch.hpp "
        "gemm/sm100/spec.hpp gemm/sm90/spec.hpp plan/arch_spec.hpp "
        "src/build_system/architectures.py tests/host test_plan.py test_sm100.py "
        "test_build_files.py",
    ),
    BESIDE: (take(GEMM, "Eleven more places", "#"), ""),
    "a stand-alone kernel, with op, module and gradient": (
        NORM,
        # A row, what a command writes, and what tells users.
        "src/kernels/table.py cutlass_fused/schemas.txt src/ops/rms_norm.cpp README.md "
        "CHANGELOG.md "
        # Read, run, or for what a recipe cannot know.
        "src/kernels/ merge_statistics.cu common/types.hpp _description.py _softmax.py functional "
        "test_recipe_standalone.py test_built_code.py test_row_ops.py calls.py "
        "cases_statistics.py eager_statistics.py accuracy_statistics.py planted_row_faults.py "
        "test_softmax.py layers.py",
    ),
}


def list_items(addition):
    return re.findall(r"`([\w/.-]+(?:\.\w+|/))`", ITEMS[addition])


def is_same(one, other):
    one, other = one.rstrip("/"), other.rstrip("/")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def test_every_addition_is_told():
    assert set(NUMBERS) == set(ITEMS) == {*RECIPES}


@pytest.mark.parametrize("addition", RECIPES)
def test_number_is_that_of_the_files(addition):
    items = list_items(addition)
    assert len(items) == len(set(items)) == int(NUMBERS[addition])
    for item in items:
        assert item in TO_WRITE or (ROOT / item).exists() or any(is_same(item, f) for f in FILES)


@pytest.mark.parametrize("addition", RECIPES)
def test_files_are_those_of_the_recipe(addition):
    """A file that a recipe names is to be changed, or is named here as one that is not."""
    text, others = RECIPES[addition]
    items, named, others = list_items(addition), list_paths(text), others.split()
    for item in items:
        assert any(is_same(item, path) for path in named), item
    for path in named:
        changed = any(is_same(path, item) for item in items)
        assert changed or any(is_same(path, other) for other in others), path
    for other in others:
        assert any(is_same(other, path) for path in named), f"{other} is not in the recipe"


def test_number_of_an_architecture():
    """Nothing else names the generation of 9.0: a place that the recipe forgets would."""
    own = re.compile(r"gemm/sm(?:90|100)|gemm/\w+_sm90/|_sm90\.(?:hpp|cuh)$")
    naming = [
        path
        for path in FILES
        if path.startswith(("include/", "src/", "cutlass_fused/", "bench/"))
        and path.endswith((".hpp", ".cuh", ".cpp", ".cu", ".py"))
        and not own.search(path)
        and re.search(r"sm90", (ROOT / path).read_text(), re.IGNORECASE)
    ]
    items = [*list_items(ARCHITECTURE), *list_items(BESIDE)]
    assert len(naming) == len(items), naming
    for path in naming:
        assert any(is_same(path, item) for item in items), path
