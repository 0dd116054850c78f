"""The recipes under include/: their code compiles, and fits the tables that it goes into.

test_recipe_epilogue.py and test_recipe_standalone.py follow two of them to the letter."""

import ast
import re
import subprocess

import pytest
from documents import RECIPES, list_blocks

from build_system.cuda_toolkit import find_cuda_toolkit
from build_system.cutlass_headers import find_cutlass
from build_system.flags import Tools, cpp_flags, cuda_flags
from build_system.host_compiler import name_host_compiler
from build_system.paths import ROOT
from build_system.torch_library import find_torch
from kernels import table as kernels
from kernels.table import ARCHS, EPILOGUES, STANDALONE, TYPES


def find_block(language, part):
    """The one block of the recipes that holds `part`."""
    (block,) = (block for block in list_blocks(RECIPES, language) if part in block)
    return block


PRELU = find_block("cpp", "struct PReLU")
RMS_NORM = find_block("cpp", "Declarations only")
RMS_NORM_KERNEL = find_block("cpp", "struct RmsNormParams")
TILE, TILE_NAME = find_block("cpp", "TileSm80<"), "256x128x64B"
TILE_SM90, TILE_SM90_NAME = find_block("cpp", "kPingpong"), "128x96x128B/2x1.pingpong"
ROW, ENGINE = find_block("cpp", "ROW(Fp32Bf16"), find_block("cpp", "struct EngineSm80")


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
    (folder / "norm").mkdir()
    (folder / "epilogue/prelu.hpp").write_text(PRELU)
    (folder / "norm/rms_norm.hpp").write_text(RMS_NORM)
    (folder / "norm/run_rms_norm.cuh").write_text(RMS_NORM_KERNEL)
    return tmp_path


def insert(include, path, after, text):
    """A copy of the header with `text` as the lines behind the one that `after` begins."""
    header = (ROOT / "include/cutlass_fused" / path).read_text()
    pattern = rf"^{after}.*\n"
    changed, count = re.subn(pattern, lambda line: line[0] + text, header, flags=re.MULTILINE)
    assert count == 1
    copy = include / "cutlass_fused" / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(changed)


@pytest.fixture
def include_with_row(include):
    """With the Math row of the recipe and its engine too."""
    insert(include, "common/math.hpp", re.escape("#define CUTLASS_FUSED_MATH_ROWS(ROW)"), ROW)
    math = include / "cutlass_fused/common/math.hpp"
    text = math.read_text().replace("enum class Engine {", "enum class Engine { kBf16,")
    words = "CUTLASS_FUSED_PRECISIONS(ROW) "
    assert words in text
    math.write_text(text.replace(words, f'{words}ROW(kBf16, "bf16") '))
    return include


def compile_host(tools, include, source, *flags):
    """The messages of the host compiler, with all that the programs of tests/host are held to."""
    command = [tools.host_compiler, "-std=c++17", "-Wall", "-Werror", "-pthread", *flags]
    command += ["-I", include, "-I", ROOT / "include", "-isystem", tools.toolkit.include, source]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def run(*command):
    result = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_epilogue_and_tiles_on_the_host(tools, include):
    tile, tile_sm90 = (row.partition("//")[0].strip().rstrip(",") for row in (TILE, TILE_SM90))
    source = f"""
    #include <cstdio>
    #include "cutlass_fused/epilogue/elements/evaluate.hpp"
    #include "cutlass_fused/epilogue/prelu.hpp"
    #include "cutlass_fused/plan/tile_names.hpp"
    using namespace cutlass_fused;
    using namespace cutlass_fused::sm90;
    int main() {{
      PReLU::Args const args{{Vector::constant(1.0f), Vector::constant(0.25f)}};
      std::printf("%g %g ", evaluate<PReLU>(args, 2.0f, 0, 0), evaluate<PReLU>(args, -5.0f, 0, 0));
      std::printf("%s ", TileList<{tile}>::kShapes[0].name().c_str());
      std::printf("%s\\n", TileListSm90<sm90::{tile_sm90}>::kShapes[0].name().c_str());
    }}
    """
    (include / "main.cpp").write_text(source)
    flags = [f for f in cpp_flags(tools) if f != "-O2"]
    program = include / "main"
    run(tools.host_compiler, "-I", include, *flags, include / "main.cpp", "-o", program)
    assert run(program).split() == ["3", "-1", TILE_NAME, TILE_SM90_NAME]
    assert f'force_tile("{TILE_NAME}")' in RECIPES
    assert f'force_tile("{TILE_SM90_NAME}@n4")' in RECIPES


@pytest.mark.parametrize(
    ("path", "table", "row", "name"),
    [
        ("gemm/sm80/tiles.hpp", "using TilesSm80 = TileList<", TILE, TILE_NAME),
        ("gemm/sm90/tiles.hpp", "using Tiles = TileListSm90<", TILE_SM90, TILE_SM90_NAME),
    ],
    ids=["sm80", "sm90"],
)
def test_a_tile_is_one_line(tools, include, path, table, row, name):
    """Then plans know it: forced by its name, or found by timing it."""
    assert row.count("\n") == 1
    insert(include, path, table, row)
    program = include / "plan"
    source = ROOT / "tests/host/plan.cpp"
    assert compile_host(tools, include, source, "-o", program).stderr == ""
    call = "dtype=bfloat16 m=1024 n=8192 k=8192"
    lines = f"tiles {call}\nplan {call} forced={name}\nplan {call} tuned={name}\n"
    result = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    tiles, forced, tuned = result.stdout.splitlines()
    assert name in tiles.split()
    assert forced == tuned and forced.partition(": ")[2].startswith(name)


def test_math_row_is_one_line(tools, include_with_row):
    """The host compiler tells where a new engine must be known: where the recipe says."""
    assert ROW.count("\n") == 1
    source = include_with_row / "row.cpp"
    source.write_text("""
    #include "cutlass_fused/common/math.hpp"
    using namespace cutlass_fused;
    static_assert(spec_of(MathId::kFp32Bf16).engine == Engine::kBf16);
    static_assert(Fp32Bf16::kIn == DataType::kFloat32 && Fp32Bf16::kId == MathId::kFp32Bf16);
    static_assert(sizeof kMathIds / sizeof *kMathIds == sizeof kMathSpecs / sizeof *kMathSpecs);
    """)
    assert compile_host(tools, include_with_row, source, "-fsyntax-only").stderr == ""
    errors = compile_host(tools, include_with_row, ROOT / "tests/host/plan.cpp", "-fsyntax-only")
    unhandled = set(re.findall(r"(\S+):\d+:\d+: error: enumeration value .kBf16.", errors.stderr))
    functions = set(re.findall(r"In function .*?(\w+)\((?:\w+::)?MathId\)", errors.stderr))
    assert functions == {"tiles_sm80", "tiles_sm90", "statistics_tile_sm90"}
    assert {f"`{name}`" in RECIPES for name in functions} == {True}
    for path in unhandled:
        assert f"`{path.partition('include/cutlass_fused/')[2]}`" in RECIPES
    assert len(unhandled) == len(functions)


def test_math_row_is_read_by_the_table_of_kernels(include_with_row):
    """And by the list of dtypes that tests take."""
    header = include_with_row / "cutlass_fused/common/math.hpp"
    (added,) = set(kernels.read_math_rows(header)) - set(kernels.MATH_ROWS)
    assert added == ("Fp32Bf16", "fp32_bf16", "kFloat32", "kBf16", "kBf16")


def test_architecture_is_one_line():
    row = find_block("cpp", "ROW(Sm100")
    assert row.count("\n") == 1
    assert row.strip() in (ROOT / "include/cutlass_fused/common/arch.hpp").read_text()


def test_a_type_that_is_forgotten_does_not_compile(tools, include):
    """Where the recipe says so, of what the host compiles."""
    insert(
        include,
        "common/data_type.hpp",
        "template <DataType>$",
        """struct TypeTraits;
template <>
struct TypeTraits<DataType::kFloat8> {
  using Storage = uint8_t;
  static constexpr char kName[] = "float8";
  static constexpr float kInverseEps = 8.0f;
};
template <DataType>
""",
    )
    header = include / "cutlass_fused/common/data_type.hpp"
    rows = "CUTLASS_FUSED_DATA_TYPES(ROW) "
    header.write_text(header.read_text().replace(rows, f"{rows}ROW(kFloat8) "))
    errors = compile_host(tools, include, ROOT / "tests/host/plan.cpp", "-fsyntax-only").stderr
    for place in (
        r"data_type\.hpp:\d+:\d+: error: static assertion failed",  # size_of
        r"types\.hpp:\d+:\d+: error: static assertion failed",  # Vector
        r"math\.hpp:\d+:\d+: error: static assertion failed",  # no Math row has it
    ):
        assert re.search(place, errors), place


def test_element_type_compiles(tools, include_with_row):
    """The types of the kernel; compiling the kernel itself would take many times as long."""
    include = include_with_row
    tile = re.search(r"TileSm80<.*?>", TILE)[0]
    source = f"""
    #include "cutlass_fused/gemm/sm80/kernel.hpp"
    #include "cutlass_fused/epilogue/prelu.hpp"
    namespace cutlass_fused {{
    {ENGINE}
    static_assert(GemmSm80<{tile}, Fp32Bf16, PReLU, 16>::kThreads == 256);
    }}
    """
    (include / "type.cu").write_text(source)
    command = [tools.toolkit.nvcc, "-I", include, *cuda_flags(tools), "-arch=compute_80", "-ptx"]
    run(*command, include / "type.cu", "-o", include / "type.ptx")


def test_epilogue_and_tile_compile_for_sm90(tools, include):
    """The types of the kernel, as above."""
    tile = f"sm90::{re.search(r'TileRow<.*?>', TILE_SM90)[0]}::type"
    source = f"""
    #include "cutlass_fused/gemm/sm90/kernel.hpp"
    #include "cutlass_fused/epilogue/prelu.hpp"
    using namespace cutlass_fused;
    using namespace cutlass_fused::sm90;
    using Gemm = GemmSm90<{tile}, Bf16, PReLU>;
    static_assert(Gemm::kThreads == 384);
    Gemm::Params make_params() {{
      Gemm::Params params = Gemm::make_params({{}}, {{}}, {{}}, 1);
      Gemm::set_epilogue(params, {{}}, {{}});
      return params;
    }}
    """
    (include / "type.cu").write_text(source)
    command = [tools.toolkit.nvcc, "-I", include, *cuda_flags(tools), "-arch=compute_90a", "-ptx"]
    run(*command, include / "type.cu", "-o", include / "type.ptx")


@pytest.mark.parametrize("dtype", TYPES)
def test_standalone_kernel_compiles(tools, include, dtype, monkeypatch):
    """The very file that the build would generate."""
    row = ast.literal_eval(f"{{{find_block('python', 'run_rms_norm.cuh')}}}")
    monkeypatch.setattr(kernels, "STANDALONE", STANDALONE | row)
    kernel = kernels.StandaloneKernel("rms_norm", dtype)
    (include / kernel.file_name).write_text(kernel.source)
    ptx = include / "kernel.ptx"
    # 9.0 has what waits for the kernel in front.
    command = [tools.toolkit.nvcc, "-I", include, *cuda_flags(tools), "-arch=compute_90", "-ptx"]
    run(*command, include / kernel.file_name, "-o", ptx)
    entries = re.findall(r"\.entry (\S*rms_norm\S*)\(", ptx.read_text())
    assert len(set(entries)) == 2  # aligned and not
    for access in (r"ld\.global\.v4", r"st\.global\.v4", "griddepcontrol.wait"):
        assert re.search(access, ptx.read_text())


def test_rows_have_the_form_of_their_tables():
    for table, part in ((EPILOGUES, '"PReLU":'), (STANDALONE, '"rms_norm":')):
        ((key, value),) = ast.literal_eval(f"{{{find_block('python', part)}}}").items()
        assert key not in table and {type(row) for row in table.values()} == {type(value)}
        if table is STANDALONE:
            assert f"#define {value[1]}(TYPE)" in RMS_NORM_KERNEL
        else:
            assert f"struct {key} " in PRELU
    ((arch, maths),) = ast.literal_eval(f"{{{find_block('python', 'Sm100')}}}").items()
    assert ARCHS[arch] == maths
