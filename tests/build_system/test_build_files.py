"""What the build generates, how many jobs it runs, and that it compiles nothing twice."""

import itertools
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from build_system import flags, generated_sources, jobs, library, ninja_file, paths
from build_system.architectures import ARCH_GROUPS, parse_architectures
from kernels.open_table import list_host_files, list_kernel_files
from kernels.table import (
    ARCHS,
    EPILOGUES,
    EPILOGUES_OF_FP32,
    HEADERS,
    KERNELS_OF_FP32,
    MATH_ROWS,
    MATHS,
    MATHS_OF_PAIRS,
    MATHS_OF_SPLIT_ROWS,
    SCHEDULES,
    STATISTICS_HEADERS,
    TYPES,
    list_files,
    list_kernels,
    list_product_files,
    list_statistics_kernels,
)

INCLUDE = paths.ROOT / "include"


# The instantiation table


def test_table_is_a_product():
    kernels = list_kernels()
    products = sum(len(maths) * len(EPILOGUES) for maths in ARCHS.values())
    of_fp32 = len(KERNELS_OF_FP32) * len(EPILOGUES_OF_FP32)
    assert len(set(kernels)) == len(kernels) == products + of_fp32
    assert {kernel.arch for kernel in kernels} <= ARCH_GROUPS.keys()


def test_every_product_is_in_one_file():
    files = list_product_files()
    assert len({file.file_name for file in files}) == len(files)
    lines = [(file.arch, line) for file in files for line in file.lines]
    expected = []
    for kernel in list_kernels():
        if kernel.arch == "Sm90":
            schedules = tuple(f"k{name}" for name in read_schedules())
            lines_of_kernel = [*kernel.list_lines(schedules), *kernel.lines_along_n]
            expected += [("Sm90", line) for line in lines_of_kernel]
        else:
            expected.append((kernel.arch, kernel.line))
    for row in list_statistics_kernels():
        expected += [(row.arch, line) for line in row.lines]
    assert sorted(lines) == sorted(expected)


def test_every_schedule_is_registered_by_one_file():
    """For each Math row and epilogue: a tile of a schedule that no file names would be in plans,
    and in no library."""
    schedules = [f"k{name}" for name in read_schedules()]
    assert sorted(itertools.chain.from_iterable(SCHEDULES.values())) == sorted(schedules)
    pattern = r"CUTLASS_FUSED_REGISTER_TILES_SM90\((\w+), (\w+), (?:Unscaled<)?(\w+)>?\);"
    registered = [
        match for file in list_product_files() for match in re.findall(pattern, file.source)
    ]
    products = [*itertools.product(schedules, ARCHS["Sm90"], EPILOGUES)]
    maths = [math for arch, math in KERNELS_OF_FP32 if arch == "Sm90"]
    products += itertools.product(schedules, maths, EPILOGUES_OF_FP32)
    assert sorted(registered) == sorted(products)


def test_epilogues_of_fp32_have_kernels_of_fp32():
    types = {row.row: row.type for row in MATH_ROWS}
    for arch, math in KERNELS_OF_FP32:
        assert math in ARCHS[arch] and types[math] == "kFloat32"
    assert not EPILOGUES.keys() & EPILOGUES_OF_FP32.keys()
    # With what a plan falls back to: cuBLAS, CUDA cores, and a pass behind.
    names = {file.file_name for file in list_files()}
    for epilogue in map(str.lower, EPILOGUES_OF_FP32):
        assert names >= {f"{kind}_{epilogue}.cu" for kind in ("apply", "tf32x3", "tf32x3_sm90")}


def read_schedules():
    tiles = (INCLUDE / "cutlass_fused/gemm/sm90/tiles.hpp").read_text()
    body = re.search(r"enum class ScheduleSm90 \{(.*?)\};", tiles, re.DOTALL)[1]
    return re.findall(r"\bk([A-Z]\w*)", body)


def test_sm80_kernels_are_there_for_everything():
    """They serve every GPU, and what the kernels of a newer one cannot read or write."""
    assert set(ARCHS["Sm80"]) == set(MATHS)
    epilogues = {kernel.epilogue for kernel in list_kernels() if kernel.arch == "Sm80"}
    assert epilogues == EPILOGUES.keys()


def test_math_rows_are_those_of_the_header():
    """With none that the pattern overlooks."""
    maths = (INCLUDE / "cutlass_fused/common/math.hpp").read_text()
    body = maths.partition("#define CUTLASS_FUSED_MATH_ROWS(ROW)")[2].partition("\n\n")[0]
    assert len(MATH_ROWS) == body.count("ROW(") == len({row.row for row in MATH_ROWS})
    assert {row.type for row in MATH_ROWS} == set(TYPES)
    engines = re.search(r"enum class Engine \{(.*?)\};", maths, re.DOTALL)[1]
    assert {row.engine for row in MATH_ROWS} <= set(re.findall(r"\bk\w+", engines))
    # Plain fp32 runs on CUDA cores: its kernel is that of each epilogue.
    assert {*MATHS, "Fp32", "ShortTf32"} == {row.row for row in MATH_ROWS}
    assert len({row.name for row in MATH_ROWS}) == len(MATH_ROWS) - 1  # both are called fp32
    splits = re.search(r"constexpr bool splits_rows\(Engine.*?\}", maths, re.DOTALL)[0]
    split = set(re.findall(r"Engine::(\w+)", splits))
    assert {row.row for row in MATH_ROWS if row.engine in split} == set(MATHS_OF_SPLIT_ROWS)
    assert set(MATHS_OF_PAIRS) <= set(MATHS_OF_SPLIT_ROWS)


def test_sm90_kernels_are_there_for_what_the_headers_say():
    tiles = (INCLUDE / "cutlass_fused/gemm/sm90/tiles.hpp").read_text()
    assert set(ARCHS["Sm90"]) == set(re.findall(r"struct TilesSm90For<(\w+)>", tiles))
    epilogues = {kernel.epilogue for kernel in list_kernels() if kernel.arch == "Sm90"}
    assert epilogues == EPILOGUES.keys() | EPILOGUES_OF_FP32.keys()


def test_table_names_what_the_headers_define():
    archs = (INCLUDE / "cutlass_fused/common/arch.hpp").read_text()
    rows = re.findall(r'^  ROW\((\w+), (\d+), "([^"]*)", (\w+)\)', archs, re.MULTILINE)
    assert [arch for arch, *_ in rows] == list(ARCHS) == list(ARCH_GROUPS)
    assert len(rows) == archs.partition("#define CUTLASS_FUSED_ARCH_ID")[0].count("  ROW(")
    for arch, gpu, listed, _ in rows:
        own = ARCH_GROUPS[arch].own
        assert (gpu, listed) == (("0", "") if own is None else (own.number, str(own)))
    for arch in ARCHS:
        texts = [
            (INCLUDE / "cutlass_fused" / header).read_text()
            for header in (*HEADERS[arch], *STATISTICS_HEADERS.get(arch, ()))
        ]
        lines = [line for file in list_product_files() if file.arch == arch for line in file.lines]
        for macro in {line.partition("(")[0] for line in lines}:
            assert sum(f"#define {macro}(" in text for text in texts) == 1
    for epilogue, header in EPILOGUES.items():
        assert f"struct {epilogue} " in (INCLUDE / header).read_text()


def test_types_are_those_of_the_header():
    header = (INCLUDE / "cutlass_fused/common/data_type.hpp").read_text()
    (names,) = re.findall(r"#define CUTLASS_FUSED_DATA_TYPES\(ROW\) (.*)", header)
    assert TYPES == tuple(re.findall(r"ROW\((\w+)\)", names))


def find_file(file_name):
    return next(file for file in list_product_files() if file.file_name == file_name)


def test_product_source():
    """Only the headers of the epilogues that are in it: others may change without compiling it."""
    assert find_file("sm80_scaleleakyrelu.cu").source.splitlines()[1:] == [
        '#include "cutlass_fused/gemm/sm80/launch.hpp"',
        '#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"',
        "namespace cutlass_fused {",
        "CUTLASS_FUSED_REGISTER_GEMM_SM80(Fp16x1, Unscaled<ScaleLeakyReLU>);",
        "CUTLASS_FUSED_REGISTER_GEMM_SM80(Bf16, ScaleLeakyReLU);",
        "CUTLASS_FUSED_REGISTER_GEMM_SM80(F16, ScaleLeakyReLU);",
        "}  // namespace cutlass_fused",
    ]


def test_source_of_products_with_statistics():
    assert find_file("sm90_statistics.cu").source.splitlines()[1:] == [
        '#include "cutlass_fused/gemm/sm90_batch_norm/launch.hpp"',
        '#include "cutlass_fused/gemm/sm90/logits.hpp"',
        "namespace cutlass_fused {",
        "CUTLASS_FUSED_REGISTER_STATISTICS_SM90(Fp16x1);",
        "CUTLASS_FUSED_REGISTER_STATISTICS_SM90(Bf16);",
        "CUTLASS_FUSED_REGISTER_BATCH_NORM_SM90(Bf16);",
        "CUTLASS_FUSED_REGISTER_LOGITS_SM90(Bf16);",
        "CUTLASS_FUSED_REGISTER_STATISTICS_SM90(F16);",
        "CUTLASS_FUSED_REGISTER_BATCH_NORM_SM90(F16);",
        "CUTLASS_FUSED_REGISTER_LOGITS_SM90(F16);",
        "}  // namespace cutlass_fused",
    ]


def test_generated_files_are_rewritten_only_when_changed(tmp_path):
    kernels = generated_sources.write_kernels(tmp_path)
    first = tmp_path / kernels[0].file_name
    written = first.stat().st_mtime_ns
    (tmp_path / kernels[1].file_name).write_text("edited")
    generated_sources.write_kernels(tmp_path)
    assert first.stat().st_mtime_ns == written
    assert (tmp_path / kernels[1].file_name).read_text() == kernels[1].source


def test_schemas_become_definitions(tmp_path):
    schemas = tmp_path / "schemas.txt"
    schemas.write_text('# names\n\nlinear(str precision="ieee") -> Tensor\n force(str s) -> ()\n')
    generated_sources.write_schemas(schemas, tmp_path)
    assert (tmp_path / "schemas.inc").read_text() == (
        'm.def("linear(str precision=\\"ieee\\") -> Tensor");\nm.def("force(str s) -> ()");\n'
    )


# build.ninja


def read_flags(edge):
    """The words that the shell makes of an edge's flags."""
    return shlex.split(ninja_file.quote(edge.flags).replace("$$", "$"))


def test_every_source_is_compiled_once_the_longest_first(tools):
    edges = ninja_file.list_edges(tools)
    names = [edge.source.name for edge in edges]
    kernels = [kernel.file_name for kernel in list_files() if kernel.arch != "Sm100"]
    assert names[: len(kernels)] == kernels
    written = [
        path.name for path in (paths.ROOT / "src").rglob("*") if path.suffix in (".cpp", ".cu")
    ]
    written += [file.file_name for file in (*list_kernel_files(), *list_host_files())]
    assert sorted(names[len(kernels) :]) == sorted(written)
    assert len({edge.output for edge in edges}) == len(edges)


def test_only_one_file_knows_the_architecture_list(tools):
    knowing = [e for e in ninja_file.list_edges(tools) if "CUTLASS_FUSED_ARCHS" in str(e.flags)]
    assert [edge.source.name for edge in knowing] == ["build_info.cpp"]
    words = read_flags(knowing[0])
    assert '-DCUTLASS_FUSED_ARCHS="8.0;9.0a"' in words
    assert '-DCUTLASS_FUSED_PTX="8.0"' in words
    assert '-DCUTLASS_FUSED_CUDA_VERSION="13.0"' in words
    assert '-DCUTLASS_FUSED_CUTLASS_VERSION="4.2.0"' in words


def test_kernels_never_see_torch_and_ops_do(tools):
    """Ops by the stable ABI, and the switch by all that this version has."""
    for edge in ninja_file.list_edges(tools):
        is_kernel, is_switch = edge.source.suffix == ".cu", edge.library == paths.SWITCH
        is_open = edge.library == paths.OPEN_KERNELS
        assert is_switch == edge.source.is_relative_to("src/switch")
        assert edge.rule == ("ptx" if is_open else "nvcc" if is_kernel else "cxx")
        assert ("/torch/include" in edge.flags) != is_kernel
        is_stable = "-DTORCH_TARGET_VERSION=0x020a000000000000" in edge.flags
        assert is_stable != (is_kernel or is_switch)
        assert ('-DCUTLASS_FUSED_TORCH_VERSION="2.11.0"' in edge.flags) == is_switch


def test_each_library_is_linked_of_its_own_files(tools):
    text = ninja_file.format_ninja(tools, ninja_file.list_edges(tools))
    for path, own, other in (
        (paths.LIBRARY, "linear.cpp.o", "switch.cpp.o"),
        (paths.SWITCH, "switch.cpp.o", "linear.cpp.o"),
    ):
        block = text.partition(f"build {path}: link ")[2].partition("\n\n")[0]
        assert f"/{own} " in block and f"/{other} " not in block
        # The stable ABI is all that serves every version of torch.
        assert ("-lc10" in block) == (path == paths.SWITCH)
        assert ("-ltorch_cuda" in block) == (path == paths.LIBRARY)


def test_open_kernels_are_packed_of_their_own_files(tools):
    text = ninja_file.format_ninja(tools, ninja_file.list_edges(tools))
    block = text.partition(f"build {paths.OPEN_KERNELS}: pack ")[2].partition("\n")[0]
    packed, _, script = block.partition(" | ")
    names = [file.file_name for file in list_kernel_files()]
    assert packed.split() == [f"{paths.BUILD}/objects/{name}.ptx" for name in names]
    assert (paths.ROOT / script).is_file()


def test_a_switch_that_does_not_compile_is_left_out(tools, monkeypatch, capsys, tmp_path):
    """Beside a torch whose API has changed the ops are built all the same."""
    failing = set()

    def run(command, **_):
        return subprocess.CompletedProcess(command, int(command[-1] in failing))

    monkeypatch.setattr(library, "find_tools", lambda: tools)
    monkeypatch.setattr(library, "configure", lambda tools: Path("build.ninja"))
    monkeypatch.setattr(library, "ROOT", tmp_path)
    (tmp_path / paths.BUILD / "objects").mkdir(parents=True)
    (tmp_path / paths.BUILD / "objects/a.o").touch()
    monkeypatch.setattr(library.subprocess, "run", run)
    monkeypatch.setattr(library, "read_ninja_version", lambda ninja: "1.13.2")
    needed = [tmp_path / paths.LIBRARY, tmp_path / paths.OPEN_KERNELS]
    switch, common = tmp_path / paths.SWITCH, tmp_path / paths.COMMON_KERNELS
    assert library.build() == [*needed, switch, common]
    failing.add(str(paths.SWITCH))
    assert library.build() == [*needed, common]
    assert "switch.so was not made and is left out" in capsys.readouterr().out
    failing.add(str(paths.COMMON_KERNELS))
    assert library.build() == needed
    assert "common_kernels.bin was not made and is left out" in capsys.readouterr().out
    failing.add(str(paths.LIBRARY))
    with pytest.raises(SystemExit, match="the library did not compile"):
        library.build()


@pytest.mark.parametrize(
    "archs, real",
    [
        *[(archs, {}) for archs in ("8.0", "9.0", "8.9;12.0", "8.0;10.0")],
        *[(archs, {"Sm90": "90a"}) for archs in ("9.0a", "8.0;9.0a")],
        *[(archs, {"Sm100": "100a"}) for archs in ("10.0a", "8.0;10.0a")],
        ("8.0;9.0a;10.0a", {"Sm90": "90a", "Sm100": "100a"}),
    ],
)
def test_group_without_a_listed_architecture_is_left_out(tools, archs, real):
    """9.0 is 9.0a without what that GPU alone has. One file is told of it: build_info.cpp."""
    edges = ninja_file.list_edges(tools._replace(archs=parse_architectures(archs)))
    words = {edge.source.name: read_flags(edge) for edge in edges}
    for file in list_files():
        if file.arch == "Sm80":
            assert file.file_name in words
        elif number := real.get(file.arch):
            assert words[file.file_name] == [
                "-gencode",
                f"arch=compute_{number},code=[sm_{number}]",
            ]
        else:
            assert file.file_name not in words
    for file in list_kernel_files():
        virtual = {"Sm80": "compute_80", "Sm90": "compute_90a"}[file.arch]
        is_listed = file.arch == "Sm80" or file.arch in real
        assert words.get(file.file_name) == ([f"-arch={virtual}"] if is_listed else None)
    for file in list_host_files():
        assert (file.file_name in words) == (file.arch == "Sm80" or file.arch in real)
    listed = f'-DCUTLASS_FUSED_ARCHS="{archs}"'
    told = [edge.source.name for edge in edges if listed in words[edge.source.name]]
    assert told == ["build_info.cpp"]
    defines = {word for edge in edges for word in words[edge.source.name] if "SM90" in word}
    assert not defines


def test_paths_with_spaces_survive(tools):
    text = ninja_file.format_ninja(tools, [])
    command = re.search(r"command = (.*nvcc.*)", text)[1]
    assert "/my cutlass/include" in shlex.split(command)
    assert ninja_file.escape(Path("a b:c$")) == "a$ b$:c$$"


def test_ccache_runs_in_depend_mode(monkeypatch):
    monkeypatch.setattr(flags.shutil, "which", {"ccache": "/bin/ccache"}.get)
    assert flags.launcher() == ["env", "CCACHE_DEPEND=1", "ccache"]
    monkeypatch.setattr(flags.shutil, "which", lambda name: None)
    assert flags.launcher() == []


def test_second_build_compiles_nothing():
    """Fails too when the library is older than a source: the other tests would judge old code."""
    file = paths.ROOT / paths.BUILD / "build.ninja"
    if not (paths.ROOT / paths.LIBRARY).is_file():
        pytest.skip("the library was not built in this checkout")
    ninja, built_by = library.ninja_command(), paths.ROOT / paths.NINJA_VERSION
    here = library.read_ninja_version(ninja)
    if built_by.is_file() and built_by.read_text() != here:
        pytest.skip(f"ninja {built_by.read_text()} built it, whose log ninja {here} may not read")
    command = [*ninja, "-n", "-v", "-f", str(file)]
    result = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert "no work to do" in result.stdout, result.stdout[-2000:]


# Jobs


@pytest.mark.parametrize(
    "cores, gigabytes, expected",
    [(2, 24, 2), (64, 32, 4), (8, 15.1, 2), (8, 2, 1), (1, 512, 1)],
)
def test_jobs_are_bounded_by_cores_and_memory(cores, gigabytes, expected):
    assert jobs.bound_jobs(cores, int(gigabytes * 1e9)) == expected


def test_max_jobs_overrides(monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "77")
    assert jobs.choose_jobs() == 77
    monkeypatch.setenv("MAX_JOBS", "many")
    with pytest.raises(SystemExit, match="MAX_JOBS holds 'many'"):
        jobs.choose_jobs()
    monkeypatch.delenv("MAX_JOBS")
    assert jobs.choose_jobs() >= 1
