// From dtype, precision and GPU to a kernel: with product_statistics.hpp and logits.hpp
// the one place that names Math rows and architectures.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/gemm/run.hpp"
#include "cutlass_fused/plan/choose_kernel.hpp"
#include "cutlass_fused/plan/log_choice.hpp"
#include "cutlass_fused/gemm/simt/run.hpp"
#include "cutlass_fused/gemm/fp16x3/repair_rows.hpp"
#include "ops/aligned_rows.hpp"
#include "ops/allocate.hpp"
#include "ops/checks.hpp"
#include "ops/cublas_product.hpp"
#include "ops/device.hpp"
#include "ops/recorded_products.hpp"
#include "ops/split_operand.hpp"

namespace cutlass_fused {

inline void check_status(char const* op, Status status) {
  switch (status) {
    case Status::kSuccess:
      return;
    case Status::kUnknownTile:
      STD_TORCH_CHECK(
          false, op, ": the forced tile must be one that this element type and ",
          "precision have, and that can read these operands and write y; see what begins ",
          "with tiles_ in build_info()");
    case Status::kNoKernel:
      STD_TORCH_CHECK(false, op, ": the GPU must have 99 KiB of shared memory per block");
    default:
      STD_TORCH_CHECK(false, op, ": CUDA error: ", cudaGetErrorString(cudaGetLastError()),
                      " (compiled for ", compiled_architectures(), ")");
  }
}

inline cudaStream_t current_stream(Device const& device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device.index, &stream));
  return static_cast<cudaStream_t>(stream);
}

inline bool is_capturing(Device const& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(current_stream(device), &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream may not be asked while another one is captured
  return true;
}

template <class Arch, class Math, class Epilogue>
Status launch(GemmArgs const& gemm, Choice const& choice, typename Epilogue::Args const& epilogue,
              Device const& device, Tensor const& x) {
  // The workspace comes from PyTorch's allocator on each call, so that streams and graphs never
  // share one; it may be freed while the kernel runs, as the allocator reuses it in stream order.
  std::optional<Tensor> workspace;
  size_t const bytes = workspace_size<Arch, Math, Epilogue>(gemm, choice, device);
  if (bytes > 0) workspace = allocate(x, {int64_t(bytes)}, ScalarType::Byte);

  return run_gemm<Arch, Math, Epilogue>(
      gemm, choice, epilogue,
      {device, workspace ? workspace->mutable_data_ptr() : nullptr, current_stream(device)});
}

// The epilogue behind the product of this Math row.
template <class Math, class Epilogue>
using EpilogueOf = std::conditional_t<splits_rows(Math::kEngine), Unscaled<Epilogue>, Epilogue>;

// False: PyTorch refuses.
template <class Math, class Epilogue>
bool launch_behind_cublas(char const* op, GemmArgs const& gemm,
                          typename Epilogue::Args const& epilogue, Device const& device,
                          Tensor const& x) {
  // cuBLAS cannot be initialised then.
  if (!cublas_was_called(device) && is_capturing(device)) return false;
  std::optional<Tensor> const acc = multiply_by_cublas(gemm, Math::kIn, device, x);
  if (!acc) return false;
  if (logs_choices()) log_choice<Math>(kCublasName, Epilogue::kName, gemm, kCublasName);
  check_status(op,
               run_apply_epilogue<Epilogue>(gemm, static_cast<float const*>(acc->const_data_ptr()),
                                            epilogue, device, current_stream(device)));
  return true;
}

template <class Math, class Epilogue>
void launch_simt(char const* op, GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                 Device const& device) {
  if (logs_choices()) log_choice<Math>("simt", Epilogue::kName, gemm, "simt");
  check_status(op, run_gemm_simt<Epilogue>(gemm, epilogue, device, current_stream(device)));
}

// By a kernel for tensor cores.
template <class Math, class Epilogue>
void launch_tile(char const* op, Kernel const& kernel, GemmArgs const& gemm,
                 typename EpilogueOf<Math, Epilogue>::Args const& epilogue, Device const& device,
                 Tensor const& x) {
  using Fused = EpilogueOf<Math, Epilogue>;
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (kernel.sm90) {
      Status const status = launch<Sm90, Math, Fused>(gemm, kernel.choice, epilogue, device, x);
      // No cluster fits where the GPU is shared out, or the driver makes no descriptor.
      if (status != Status::kNoKernel && status != Status::kNoDescriptor) {
        return check_status(op, status);
      }
      Choice const older = choose_kernel_sm80<Math>(gemm, device);
      return check_status(op, launch<Sm80, Math, Fused>(gemm, older, epilogue, device, x));
    }
  }
  check_status(op, launch<Sm80, Math, Fused>(gemm, kernel.choice, epilogue, device, x));
}

template <class Math, class Epilogue>
void launch_kernel(char const* op, Kernel const& kernel, GemmArgs const& gemm,
                   typename Epilogue::Args const& epilogue, Device const& device, Tensor const& x) {
  if (kernel.choice.kind == KernelKind::kSimt) {
    return launch_simt<Math, Epilogue>(op, gemm, epilogue, device);
  }
  if (kernel.choice.kind == KernelKind::kCublas) {
    if (launch_behind_cublas<Math, Epilogue>(op, gemm, epilogue, device, x)) return;
    STD_TORCH_CHECK(forced_tile.load() == nullptr, op, ": PyTorch refuses the product by cuBLAS");
    Kernel const estimated = estimate_kernel<Math, CUTLASS_FUSED_SM90>(gemm, device);
    return launch_tile<Math, Epilogue>(op, estimated, gemm, epilogue, device, x);
  }
  launch_tile<Math, Epilogue>(op, kernel, gemm, epilogue, device, x);
}

// Which products are met, for autotune.
template <class Math>
void record_if_asked(Kernel const& kernel, GemmArgs const& gemm, Precision precision,
                     Device const& device, bool copied) {
  if (RecordedProducts::enabled() && !is_capturing(device)) {
    record_product<Math>(kernel, gemm, precision, device, copied);
  }
}

// By an SM90 kernel that reads copies of rows which TMA cannot read, or whose y is copied to where
// TMA cannot write. False: there is nothing to copy, or no such kernel.
template <class Math, class Epilogue>
bool launch_with_copies(char const* op, GemmArgs const& gemm,
                        typename Epilogue::Args const& epilogue, Precision precision,
                        Device const& device, Tensor const& x) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (device.code != 90 || gemm.k == 0) return false;
    AlignedRows rows(gemm, Math::kIn);
    if (!rows.any()) return false;
    Kernel const kernel =
        choose_kernel<Math, CUTLASS_FUSED_SM90>(rows.gemm(), device, rows.copies_operands());
    if (!kernel.sm90) return false;
    record_if_asked<Math>(kernel, rows.gemm(), precision, device, rows.copies_operands());
    if (kernel.choice.kind == KernelKind::kUnknownTile) check_status(op, Status::kUnknownTile);
    using Tiles = typename TilesSm90For<Math>::type;
    if (Tiles::kShapes[kernel.choice.tile].output == Output::kDirect) rows.leave_y();
    if (!rows.reserve(x)) return false;
    cudaStream_t const stream = current_stream(device);
    check_status(op, rows.make(device, stream));
    launch_kernel<Math, Epilogue>(op, kernel, rows.gemm(), epilogue, device, x);
    check_status(op, rows.copy_back(device, stream));
    return true;
  }
  return false;
}

// Whether a product of fp32 matrices runs on rows that are split into fp16 numbers, not on CUDA
// cores. At a K of 32 plain fp32 has the smaller error, at 36 split numbers have; under "tf32"
// memory is the limit there, and cuBLAS computes such products in fp32 too.
inline bool splits_for(int64_t k) {
  constexpr int64_t kShort = 32;
  return k > kShort && fits_kernels(1, 1, multiplied_k<Fp16x3>(k));
}

inline bool runs_on_split_rows(Matrices const& matrices) {
  return matrices.type == DataType::kFloat32 && splits_for(matrices.k);
}

// On fp32 rows that are split into fp16 numbers first: multiply(kernel, gemm, epilogue) launches
// the product of these, and then repair(x, weight), with the split operands, repairs it, or keeps
// these for a later repair. Without the weight itself the repair reads its split.
template <class Math, class Epilogue, class Multiply, class Repair>
void launch_on_split_rows(char const* op, GemmArgs const& gemm,
                          typename Epilogue::Args const& epilogue, Precision precision,
                          Device const& device, std::optional<Tensor> const& weight_split,
                          Tensor const& like, Multiply const& multiply, Repair const& repair) {
  SplitOperand x(gemm.m, gemm.k, Math::kEngine), weight(gemm.n, gemm.k, Math::kEngine);
  GemmArgs split = gemm;
  split.ldx = x.layout().pitch();
  split.ldw = weight.layout().pitch();
  split.x = split.weight = nullptr;  // not there yet
  Kernel const kernel = choose_kernel<Math, CUTLASS_FUSED_SM90>(split, device);
  record_if_asked<Math>(kernel, split, precision, device, false);
  if (kernel.choice.kind == KernelKind::kUnknownTile) check_status(op, Status::kUnknownTile);

  cudaStream_t const stream = current_stream(device);
  if (weight_split.has_value()) {
    weight.take(*weight_split);
  } else {
    check_status(op, weight.make(gemm.weight, gemm.ldw, device, stream, like));
  }
  check_status(op, x.make(gemm.x, gemm.ldx, device, stream, like));
  split.x = x.matrix().rows;
  split.weight = weight.matrix().rows;
  multiply(
      kernel, split,
      typename Unscaled<Epilogue>::Args{epilogue, {x.matrix().scales}, {weight.matrix().scales}});
  repair(x, weight);
}

template <class Epilogue>
void repair_rows(char const* op, GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                 SplitOperand const& x, SplitOperand const& weight, Device const& device) {
  check_status(op, run_repair_rows<Epilogue>(gemm, epilogue, x.matrix(), weight.matrix(), device,
                                             current_stream(device)));
}

template <class Math, class Epilogue>
void launch_on_split_rows(char const* op, GemmArgs const& gemm,
                          typename Epilogue::Args const& epilogue, Precision precision,
                          Device const& device, std::optional<Tensor> const& weight_split,
                          Tensor const& like) {
  launch_on_split_rows<Math, Epilogue>(
      op, gemm, epilogue, precision, device, weight_split, like,
      [&](Kernel const& kernel, GemmArgs const& split, auto const& unscaled) {
        launch_tile<Math, Epilogue>(op, kernel, split, unscaled, device, like);
      },
      [&](SplitOperand const& x, SplitOperand const& weight) {
        repair_rows<Epilogue>(op, gemm, epilogue, x, weight, device);
      });
}

// By the newest kernels that serve the GPU and the operands, unless another was found to be faster.
template <class Math, class Epilogue>
void launch_newest(char const* op, GemmArgs const& gemm, typename Epilogue::Args const& epilogue,
                   Precision precision, Device const& device, Tensor const& x) {
  if (launch_with_copies<Math, Epilogue>(op, gemm, epilogue, precision, device, x)) return;
  Kernel const kernel = choose_kernel<Math, CUTLASS_FUSED_SM90>(gemm, device);
  record_if_asked<Math>(kernel, gemm, precision, device, false);
  launch_kernel<Math, Epilogue>(op, kernel, gemm, epilogue, device, x);
}

// Throws where the product is too large for the kernels, its operands do not lie on multiples of
// their elements' size, or weight_split cannot be of this weight.
inline void check_operands(char const* op, Matrices const& matrices, Precision precision) {
  STD_TORCH_CHECK(fits_kernels(matrices.m, matrices.n, matrices.k), op,
                  ": M, N, K and the number of output tiles must each be below 2^31, got M=",
                  matrices.m, " N=", matrices.n, " K=", matrices.k);
  auto const address = [](Tensor const& t) {
    return reinterpret_cast<uintptr_t>(t.const_data_ptr());
  };
  STD_TORCH_CHECK((address(matrices.x) | address(matrices.weight)) % size_of(matrices.type) == 0,
                  op, ": x and weight must be aligned to their elements");
  if (!matrices.weight_split.has_value() || !runs_on_split_rows(matrices)) return;
  Tensor const& split = *matrices.weight_split;
  int64_t const bytes = SplitLayout{matrices.n, matrices.k, precision != Precision::kTf32}.bytes();
  STD_TORCH_CHECK(
      split.numel() == bytes && address(split) % 16 == 0, op,
      ": weight_split must be what split_weight returns for this weight and precision, ", bytes,
      " bytes aligned to 16, got ", split.numel(), " bytes, ", address(split) % 16,
      " above a multiple of 16");
}

// What is multiplied, into y: contiguous and not empty. Rows that no kernel reads are copied.
inline GemmArgs prepare_product(Matrices& matrices, Tensor const& y, DataType y_type) {
  bool const only_split = runs_on_split_rows(matrices) && stands_for_split(matrices);
  copy_scattered_rows(matrices, !only_split);
  return {matrices.m,   matrices.n,
          matrices.k,   matrices.x.const_data_ptr(),
          matrices.ldx, only_split ? nullptr : matrices.weight.const_data_ptr(),
          matrices.ldw, y.mutable_data_ptr(),
          matrices.n,   y_type};
}

// y = epilogue(x @ weight.T), into y as above. x's device must be the current one.
template <class Epilogue>
void run_product(char const* op, Matrices matrices, typename Epilogue::Args const& epilogue,
                 Precision precision, Tensor const& y, DataType y_type, Device const& device) {
  GemmArgs const gemm = prepare_product(matrices, y, y_type);
  if (runs_on_split_rows(matrices)) {
    std::optional<Tensor> const& weight_split = matrices.weight_split;
    if (precision == Precision::kTf32) {
      return launch_on_split_rows<Fp16x1, Epilogue>(op, gemm, epilogue, precision, device,
                                                    weight_split, y);
    }
    return launch_on_split_rows<Fp16x3, Epilogue>(op, gemm, epilogue, precision, device,
                                                  weight_split, y);
  }
  switch (matrices.type) {
    case DataType::kFloat16:
      return launch_newest<F16, Epilogue>(op, gemm, epilogue, precision, device, y);
    case DataType::kBFloat16:
      return launch_newest<Bf16, Epilogue>(op, gemm, epilogue, precision, device, y);
    default:
      return launch_simt<Fp32, Epilogue>(op, gemm, epilogue, device);
  }
}

// y = epilogue(x @ weight.T), a new contiguous tensor.
template <class Epilogue>
Tensor run_linear(char const* op, Matrices const& matrices, typename Epilogue::Args const& epilogue,
                  Precision precision, DataType y_type) {
  check_operands(op, matrices, precision);
  int const index = matrices.x.get_device_index();
  torch::stable::accelerator::DeviceGuard const guard(index);
  Device const& device = supported_device(op, index);
  Tensor y = allocate(matrices.x, matrices.y_shape, to_scalar_type(y_type));
  if (matrices.m == 0 || matrices.n == 0) return y;
  run_product<Epilogue>(op, matrices, epilogue, precision, y, y_type, device);
  return y;
}

}  // namespace cutlass_fused
