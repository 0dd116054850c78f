"""bench/nsight/ncu_names.py: short names for the kernels in a profile."""

import itertools
import re

import pytest

from bench.nsight import ncu_names
from bench.nsight.ncu_names import shorten_kernel
from build_system.paths import ROOT
from kernels.table import list_kernels

INCLUDE = ROOT / "include/cutlass_fused"

# Real ones, of our library (c++filt) and of PyTorch, cuBLAS, Triton and CUTLASS.
TILE = "cutlass_fused::TileSm80<128, 256, 64, 2, 4, 4, (cutlass_fused::Schedule)0>"
TILE_SM90 = (
    "cutlass_fused::TileSm90<128, 128, 128, 2, 1, (cutlass_fused::ScheduleSm90)1, "
    "(cutlass_fused::Operands)0, (cutlass_fused::Output)"
)
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel"
LEAKY_RELU = (
    "at::native::(anonymous namespace)::leaky_relu_kernel(at::TensorIteratorBase&, "
    "c10::Scalar const&)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() "
    "const::{lambda(c10::BFloat16)#1}"
)
NAMES = {
    f"void cutlass_fused::gemm_sm80<{TILE}, cutlass_fused::Bf16, cutlass_fused::ScaleBatchNorm, 16>"
    f"(cutlass_fused::GemmSm80<{TILE}, cutlass_fused::Bf16, cutlass_fused::ScaleBatchNorm, 16>"
    "::Params)": "gemm_sm80<128x256x64B, Bf16, ScaleBatchNorm, 16>",
    f"void cutlass_fused::gemm_sm90<{TILE_SM90}0>, cutlass_fused::Bf16, "
    f"cutlass_fused::ScaleLeakyReLU>(cutlass_fused::GemmSm90<{TILE_SM90}0>, cutlass_fused::Bf16, "
    "cutlass_fused::ScaleLeakyReLU>::Params)": (
        "gemm_sm90<128x128x128B/2x1.pingpong, Bf16, ScaleLeakyReLU>"
    ),
    # The profiler itself writes template arguments so.
    "void cutlass_fused::gemm_sm80<cutlass_fused::TileSm80<(int)128, (int)64, (int)64, (int)2, "
    "(int)2, (int)4, (cutlass_fused::Schedule)1>, cutlass_fused::Fp16x3, "
    "cutlass_fused::ScaleLeakyReLU, (int)16>(T1::Params)": (
        "gemm_sm80<128x64x64B.streamk, Fp16x3, ScaleLeakyReLU, 16>"
    ),
    "void cutlass_fused::gemm_sm90<cutlass_fused::TileSm90<(int)64, (int)32, (int)512, (int)1, "
    "(int)1, (cutlass_fused::ScheduleSm90)2, (cutlass_fused::Operands)1, (cutlass_fused::Output)1>,"
    " cutlass_fused::F16, cutlass_fused::ScaleBatchNorm>(T1::Params)": (
        "gemm_sm90<64x32x512B/1x1.single.swapped.direct, F16, ScaleBatchNorm>"
    ),
    "void cutlass_fused::split_rows<(bool)1, (bool)0>(cutlass_fused::SplitRowsParams)": (
        "split_rows<true, false>"
    ),
    "void cutlass_fused::row_softmax<(cutlass_fused::DataType)2, (cutlass_fused::DataType)0, "
    "cutlass_fused::Identity, cutlass_fused::FewElements, (cutlass_fused::Access)0>"
    "(cutlass_fused::RowSoftmaxParams<T3>)": (
        "row_softmax<bf16, fp32, Identity, FewElements, aligned>"
    ),
    "void cutlass_fused::row_softmax_wide<(cutlass_fused::DataType)0, (cutlass_fused::DataType)0, "
    "(cutlass_fused::Access)1>(cutlass_fused::RowSoftmaxParams<cutlass_fused::Scaled>, int)": (
        "row_softmax_wide<fp32, fp32, shifted>"
    ),
    "void cutlass_fused::normalize<(cutlass_fused::DataType)2, cutlass_fused::NormalizationBy<"
    "cutlass_fused::Vector>, (cutlass_fused::Access)2>(T1)": "normalize<bf16, Vector, elements>",
    "void cutlass_fused::normalize_strips<(cutlass_fused::DataType)1>"
    "(cutlass_fused::NormalizeStripsParams)": "normalize_strips<fp16>",
    "void cutlass_fused::batch_norm_cluster<cutlass_fused::ClusterBlock<(cutlass_fused::DataType)2,"
    " (int)8, (int)4, (int)256, (int)0>>(cutlass_fused::BatchNormClusterParams)": (
        "batch_norm_cluster<bf16, 32 columns in shared memory>"
    ),
    "void cutlass_fused::row_softmax_stream<(cutlass_fused::DataType)1, cutlass_fused::Identity>"
    "(cutlass_fused::StreamParams<cutlass_fused::Identity>)": "row_softmax_stream<fp16, Identity>",
    "row_softmax_stream<0, Scaled>": "row_softmax_stream<fp32, Scaled>",
    # Without the types of the arguments, as a report that was imported has it.
    "column_statistics<2, 0>": "column_statistics<bf16, aligned>",
    "row_softmax_wide<0, 1, 1>": "row_softmax_wide<fp32, fp16, shifted>",
    # Invented: a kernel to come, and other people's kernels of names that are known. Numbers that
    # stand for nothing here stay numbers.
    "void cutlass_fused::rms_norm<(cutlass_fused::DataType)2, (cutlass_fused::Access)1>(T1)": (
        "rms_norm<bf16, shifted>"
    ),
    "void other::normalize<(int)128, (int)1>(float*)": "normalize<128, 1>",
    "void other::normalize<float, (bool)1>(float*)": "normalize<fp32, true>",
    "void other::row_softmax<(other::DataType)7, (other::Access)9>(float*)": "row_softmax<7, 9>",
    "row_softmax<1>": "row_softmax<1>",
    "column_statistics<(unsigned char)3, (int)-1>": "column_statistics<3, -1>",
    "k" * 77: "k" * 73 + "...",
    "other::gemm<TileSm80<(int)16, (int)8>>": "gemm<TileSm80>",
    "gemm_sm90<TileSm90<64, 16, 512, 1, 1, 7, 1, 0>, Bf16>": (
        "gemm_sm90<64x16x512B/1x1.7.swapped, Bf16>"
    ),
    "cutlass_fused::merge_statistics(cutlass_fused::MergeStatisticsParams)": "merge_statistics",
    f"{ELEMENTWISE}<2, {LEAKY_RELU}, std::array<char*, 2ul> >(int, {LEAKY_RELU}, "
    "std::array<char*, 2ul>)": "vectorized_elementwise_kernel<leaky_relu_kernel>",
    f"{ELEMENTWISE}<(int)4, at::native::BinaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>"
    "(int, T2, T3)": "vectorized_elementwise_kernel<MulFunctor>",
    "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>"
    ">(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)": (
        "elementwise_kernel<MulFunctor>"
    ),
    f"{ELEMENTWISE}<2, at::native::FillFunctor<unsigned long>, std::array<char*, 1ul> >(int, "
    "at::native::FillFunctor<unsigned long>, std::array<char*, 1ul>)": (
        "vectorized_elementwise_kernel<FillFunctor>"
    ),
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, "
    "false, true>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)": (
        "softmax_warp_forward<bf16, bf16, fp32, 10, false, true>"
    ),
    "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, "
    "at::native::<unnamed>::SoftMaxForwardEpilogue>(T4 *, const T2 *, int)": (
        "cunn_SoftMaxForward<4, fp32, fp32, fp32, SoftMaxForwardEpilogue>"
    ),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_"
    "segment_k_off_kernel__5x_cublas": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_128x256x64",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT": "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "triton_poi_fused_addmm_leaky_relu_mul_0": "triton_poi_fused_addmm_leaky_relu_mul_0",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_tn_align1>(T1::Params)": (
        "cutlass_80_simt_sgemm_128x256_8x4_tn_align1"
    ),
}


@pytest.mark.parametrize("name", NAMES, ids=NAMES.values())
def test_names_are_shortened(name):
    assert shorten_kernel(name) == NAMES[name]
    assert len(NAMES[name]) <= ncu_names.LONGEST


@pytest.mark.parametrize("name", ["", "f", "_ZN2at6native13reduce_kernelE", "a<b", "a>b(", "<>()"])
def test_any_name_is_survived(name):
    assert len(shorten_kernel(name)) <= ncu_names.LONGEST


def test_element_types_are_those_of_the_header():
    header = (INCLUDE / "common/data_type.hpp").read_text()
    (names,) = re.findall(r"#define CUTLASS_FUSED_DATA_TYPES\(ROW\) (.*)", header)
    bits = {"kFloat32": "fp32", "kFloat16": "fp16", "kBFloat16": "bf16"}
    assert ncu_names.DATA_TYPES == tuple(bits[n] for n in re.findall(r"ROW\((\w+)\)", names))


def test_accesses_are_those_of_the_headers():
    paths = INCLUDE.rglob("*.cuh")
    headers = {path.stem.removesuffix("_sm90"): path.read_text() for path in paths}
    (body,) = re.findall(r"enum class Access \{(.*?)\};", headers["piece"], re.DOTALL)
    names = re.findall(r"^ *k(\w+),", body, re.MULTILINE)
    assert ncu_names.ACCESSES == tuple(name.lower() for name in names)
    for kernel, types in ncu_names.LEADING_TYPES.items():
        template = rf"template <([^>]*)>\s*__global__[^;{{]*?\b{kernel}\("
        (parameters,) = re.findall(template, headers[kernel])
        kinds = [parameter.split()[0] for parameter in parameters.split(",")]
        assert kinds[:types] == ["DataType"] * types and "DataType" not in kinds[types:]
        assert (kinds[-1] == "Access") != kernel.endswith(("_stream", "_strips"))


def test_names_of_tiles_are_those_of_the_headers():
    """The longest, of the kernels that are built: LONGEST cuts none."""
    header = (INCLUDE / "gemm/sm90/tiles.hpp").read_text()
    values = {
        name: re.findall(r"\bk([A-Z]\w*)", body)
        for name, body in re.findall(r"enum class (\w+) \{(.*?)\};", header, re.DOTALL)
    }
    spelled = re.search(r"kSchedules\[\] = \{(.*?)\};", header, re.DOTALL)[1]
    assert tuple(re.findall(r'"\.(\w+)"', spelled)) == ncu_names.SCHEDULES_SM90
    assert len(values["ScheduleSm90"]) == len(ncu_names.SCHEDULES_SM90)
    assert (values["Operands"], values["Output"]) == (
        ["Plain", "Swapped"],
        ["Tma", "Direct", "Rows"],
    )
    words = {word: str(i) for names in values.values() for i, word in enumerate(names)}
    rows = re.findall(r"^    TileRow<((?:\w+, ){7}\w+), \d+, \d+>", header, re.MULTILINE)
    group = (INCLUDE / "gemm/sm90_batch_norm/tiles.hpp").read_text()
    others = [re.sub(r"\w+::", "", tile) for tile in re.findall(r"TileSm90<([^>]*)>", group)]
    assert len(rows) == header.count(" TileRow<") > 20 and len(others) == 3
    tiles = rows + others
    for tile, row in itertools.product(tiles, list_kernels()):
        arguments = re.sub(r"k([A-Z]\w+)", lambda match: words[match[1]], tile)
        short = shorten_kernel(f"gemm_sm90<TileSm90<{arguments}>, {row.math}, {row.epilogue}>")
        assert short.endswith(f", {row.math}, {row.epilogue}>")
        for word, value in ((".swapped", "kSwap"), (".direct", "kDirect"), (".rows", "kRows")):
            assert (word in short) == (value in tile)
        schedule = next(k for k in re.findall(r"k(\w+)", tile) if k in values["ScheduleSm90"])
        spelled = ncu_names.SCHEDULES_SM90[values["ScheduleSm90"].index(schedule)]
        assert f".{spelled}" in short
