// z = (x @ weight.T + bias) * scale with its batch's statistics, or normalized by them: by the
// kernels that find these themselves, where they serve.
#pragma once

#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/plan/choice_batch_norm_sm90.hpp"
#include "cutlass_fused/plan/choice_statistics_sm80.hpp"
#include "ops/batch_statistics.hpp"

namespace cutlass_fused {

template <class Math>
BatchNormKernel choose_if_compiled(GemmArgs const& gemm, bool keep_z, Device const& device) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    return choose_batch_norm_kernel<Math>(gemm, keep_z, device);
  }
  return BatchNormKernel::kSeparate;
}

// Whether another kernel must do it: no cluster fits, or no descriptor can be made.
inline bool is_refused(char const* op, Status status) {
  if (status == Status::kNoKernel || status == Status::kNoDescriptor) return true;
  check_status(op, status);
  return false;
}

// Memory for what a product writes beside a z of so many columns: its shifts only of a z of 16
// bits.
inline ProductStatistics allocate_parts(Tensor const& like, Ranges const& ranges,
                                        GemmArgs const& gemm) {
  bool const is_shifted = size_of(gemm.y_type) == 2;
  size_t const bytes = ranges.bytes(gemm.n);
  size_t const shifts_bytes = is_shifted ? ranges.shifts_bytes(gemm.n) : 0;
  Tensor const workspace = allocate(like, {int64_t(bytes + shifts_bytes)}, ScalarType::Byte);
  auto* const parts = static_cast<char*>(workspace.mutable_data_ptr());
  return {workspace,
          ranges,
          {reinterpret_cast<uint64_t*>(parts), far_mean(gemm.y_type),
           is_shifted ? reinterpret_cast<float*>(parts + bytes) : nullptr}};
}

// False: nothing was launched.
template <class Math>
bool launch_statistics(char const* op, GemmArgs const& gemm,
                       typename EpilogueOfZ<Math>::Args const& epilogue, Device const& device,
                       Tensor const& like, std::optional<ProductStatistics>& statistics) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (choose_if_compiled<Math>(gemm, true, device) == BatchNormKernel::kSeparate) return false;
    ProductStatistics const found = allocate_parts(like, ranges_of_parts<Math>(gemm.m), gemm);
    Launch const launch{device, nullptr, current_stream(device)};
    if (is_refused(op, run_gemm_statistics<Math>(gemm, epilogue, found.parts,
                                                 /*strips=*/nullptr, launch))) {
      return false;
    }
    statistics = found;
    return true;
  }
  return false;
}

// The same by an SM80 kernel, where one was chosen.
template <class Math>
bool launch_statistics_sm80(char const* op, Kernel const& kernel, GemmArgs const& gemm,
                            typename EpilogueOfZ<Math>::Args const& epilogue, Device const& device,
                            Tensor const& like, std::optional<ProductStatistics>& statistics) {
  if (kernel.sm90) return false;
  int const tile = choose_statistics_tile_sm80<Math>(gemm, kernel.choice, device);
  if (tile < 0) return false;
  ProductStatistics const found = allocate_parts(like, ranges_of_tiles<Math>(gemm.m, tile), gemm);
  Launch const launch{device, nullptr, current_stream(device)};
  check_status(op, run_gemm_statistics_sm80<Math>(gemm, tile, epilogue, found.parts, launch));
  statistics = found;
  return true;
}

// y = (z - mean) * rstd * gamma + beta in one kernel. Nothing: none was launched; whether the batch
// has been counted is in `counted`.
template <class Math>
std::optional<std::tuple<Tensor, Tensor>> launch_batch_norm(char const* op, GemmArgs const& gemm,
                                                            ScaleBias::Args const& product,
                                                            BatchNorm const& batch_norm,
                                                            Device const& device,
                                                            Tensor const& like, bool& counted) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    if (choose_if_compiled<Math>(gemm, false, device) != BatchNormKernel::kGroup) return {};
    Tensor const mean = allocate(like, {gemm.n}, ScalarType::Float);
    Tensor const rstd = allocate(like, {gemm.n}, ScalarType::Float);
    int64_t const bytes = ranges_of_parts<Math>(gemm.m).bytes(gemm.n);
    Tensor const parts = allocate(like, {bytes}, ScalarType::Byte);
    cudaStream_t const stream = current_stream(device);
    check_status(op, run_clear_parts(parts.mutable_data_ptr(), bytes,
                                     batch_norm.running.num_batches_tracked, device, stream));
    counted = true;
    BatchNormOfProduct const of_product{product,
                                        batch_norm.gamma,
                                        batch_norm.beta,
                                        batch_norm.eps,
                                        batch_norm.running,
                                        static_cast<float*>(mean.mutable_data_ptr()),
                                        static_cast<float*>(rstd.mutable_data_ptr())};
    Status const status = run_gemm_batch_norm<Math>(gemm, of_product, parts.mutable_data_ptr(),
                                                    {device, nullptr, stream});
    if (is_refused(op, status)) return {};
    return std::make_tuple(mean, rstd);
  }
  return {};
}

// The same by two kernels that run at the same time: strips.hpp. z is gemm.y; y may be z. `stored`:
// less which shifts of columns z is stored, and where its mean as it is stored is wanted, if it is.
template <class Math>
std::optional<std::tuple<Tensor, Tensor>> launch_strips(char const* op, GemmArgs const& gemm,
                                                        ScaleBias::Args const& product,
                                                        BatchNorm const& batch_norm,
                                                        Device const& device, Tensor const& y,
                                                        bool& counted, StoredShifts stored) {
  if constexpr (has_sm90_kernels<Math, CUTLASS_FUSED_SM90>) {
    using Tile = StatisticsTile<Math>;
    if (choose_if_compiled<Math>(gemm, true, device) != BatchNormKernel::kStatistics ||
        !normalizes_strips(gemm) || reinterpret_cast<uintptr_t>(y.const_data_ptr()) % 16 != 0) {
      return {};
    }
    // The vectors of the statistics' columns begin on a cache line of their own.
    int64_t const columns = StripCounters::strips(gemm.n) * kColumnsOfStrip;
    Ranges const ranges = ranges_of_parts<Math>(gemm.m);
    size_t const parts_bytes = ranges.bytes(columns), shifts_bytes = ranges.shifts_bytes(columns);
    size_t const vector_bytes = columns * sizeof(float);
    size_t const counter_bytes = StripCounters::bytes(gemm.n);
    Tensor const mean = allocate(y, {gemm.n}, ScalarType::Float);
    Tensor const rstd = allocate(y, {gemm.n}, ScalarType::Float);
    Tensor const workspace =
        allocate(y, {int64_t(parts_bytes + shifts_bytes + 2 * vector_bytes + counter_bytes)},
                 ScalarType::Byte);
    auto* const parts = static_cast<char*>(workspace.mutable_data_ptr());
    PartPointers const pointers{reinterpret_cast<uint64_t*>(parts), far_mean(gemm.y_type),
                                reinterpret_cast<float*>(parts + parts_bytes)};
    char* const vectors = parts + parts_bytes + shifts_bytes;
    auto* const a = reinterpret_cast<float*>(vectors);
    if (stored.centre == nullptr) stored.centre = reinterpret_cast<float*>(vectors + vector_bytes);
    stored.shifts = reinterpret_cast<float*>(parts + parts_bytes);
    StripCounters const counters = StripCounters::make(vectors + 2 * vector_bytes, gemm.n);
    cudaStream_t const stream = current_stream(device);
    RunningStatistics running = batch_norm.running;
    if (running.cumulative && !counted) {
      check_status(op, run_count_batch(running.num_batches_tracked, device, stream));
      counted = true;
    }
    if (counted && !running.cumulative) running.num_batches_tracked = nullptr;
    bool const cleared = cudaMemsetAsync(counters.tiles, 0, counter_bytes, stream) == cudaSuccess;
    check_status(op, cleared ? Status::kSuccess : Status::kCudaError);
    if (is_refused(op, run_gemm_statistics<Math>(gemm, product, pointers, counters.tiles,
                                                 {device, nullptr, stream}))) {
      return {};
    }
    Matrix const z{gemm.m, gemm.n, gemm.y, gemm.ldy, gemm.y_type};
    BatchStatistics const statistics{static_cast<float*>(mean.mutable_data_ptr()),
                                     static_cast<float*>(rstd.mutable_data_ptr()), a, nullptr};
    check_status(
        op, run_normalize_strips<Math::kOut>(z, ranges, Tile::kM, parts, counters, batch_norm.gamma,
                                             batch_norm.beta, batch_norm.eps, running, statistics,
                                             stored, y.mutable_data_ptr(), device, stream));
    counted = true;
    return std::make_tuple(mean, rstd);
  }
  return {};
}

// With a slope of 1 nothing is left of the activation.
inline ScaleLeakyReLU::Args without_activation(ScaleBias::Args const& product) {
  return {product.bias, {product.scale, 1.0f}, 1.0f};
}

template <class Math>
void multiply_16_bit(char const* op, GemmArgs const& gemm, ScaleBias::Args const& product,
                     Precision precision, Device const& device, Tensor const& z, bool may_shift,
                     std::optional<ProductStatistics>& statistics) {
  if (may_shift && launch_statistics<Math>(op, gemm, product, device, z, statistics)) return;
  Kernel const kernel = choose_kernel<Math, CUTLASS_FUSED_SM90>(gemm, device);
  if (may_shift && launch_statistics_sm80<Math>(op, kernel, gemm, product, device, z, statistics)) {
    return record_if_asked<Math>(kernel, gemm, precision, device, false);
  }
  launch_newest<Math, ScaleLeakyReLU>(op, gemm, without_activation(product), precision, device, z);
}

template <class Math>
void multiply_split(char const* op, GemmArgs const& gemm, ScaleBias::Args const& product,
                    Precision precision, Device const& device,
                    std::optional<Tensor> const& weight_split, Tensor const& z,
                    std::optional<ProductStatistics>& statistics) {
  launch_on_split_rows<Math, ScaleLeakyReLU>(
      op, gemm, without_activation(product), precision, device, weight_split, z,
      [&](Kernel const& kernel, GemmArgs const& split, auto const& unscaled) {
        typename EpilogueOfZ<Math>::Args const z_epilogue{product, unscaled.x, unscaled.weight};
        if (launch_statistics<Math>(op, split, z_epilogue, device, z, statistics) ||
            launch_statistics_sm80<Math>(op, kernel, split, z_epilogue, device, z, statistics)) {
          return;
        }
        launch_tile<Math, ScaleLeakyReLU>(op, kernel, split, unscaled, device, z);
      },
      [&](SplitOperand const& x, SplitOperand const& weight) {
        ScaleLeakyReLU::Args const epilogue = without_activation(product);
        if (statistics && repairs_and_merges(gemm, device)) {
          statistics->repair = PendingRepair{gemm, epilogue, x, weight};
        } else {
          repair_rows<ScaleLeakyReLU>(op, gemm, epilogue, x, weight, device);
        }
      });
}

// z into gemm.y, which is of the tensor `z`; its statistics, if its kernel found them. `may_shift`:
// whether it may be stored less the shifts of its parts.
inline std::optional<ProductStatistics> run_product_with_statistics(
    char const* op, Matrices const& matrices, GemmArgs const& gemm, ScaleBias::Args const& product,
    Precision precision, Tensor const& z, Device const& device, bool may_shift) {
  std::optional<ProductStatistics> statistics;
  if (runs_on_split_rows(matrices)) {
    auto const multiply =
        precision == Precision::kTf32 ? multiply_split<Fp16x1> : multiply_split<Fp16x3>;
    multiply(op, gemm, product, precision, device, matrices.weight_split, z, statistics);
    return statistics;
  }
  switch (matrices.type) {
    case DataType::kFloat16:
      multiply_16_bit<F16>(op, gemm, product, precision, device, z, may_shift, statistics);
      break;
    case DataType::kBFloat16:
      multiply_16_bit<Bf16>(op, gemm, product, precision, device, z, may_shift, statistics);
      break;
    default:
      launch_simt<Fp32, ScaleLeakyReLU>(op, gemm, without_activation(product), device);
  }
  return statistics;
}

// The whole batch norm in the product's kernel, into gemm.y; as launch_batch_norm.
inline std::optional<std::tuple<Tensor, Tensor>> run_product_with_batch_norm(
    char const* op, Matrices const& matrices, GemmArgs const& gemm, ScaleBias::Args const& product,
    BatchNorm const& batch_norm, Device const& device, Tensor const& like, bool& counted) {
  switch (matrices.type) {
    case DataType::kFloat16:
      return launch_batch_norm<F16>(op, gemm, product, batch_norm, device, like, counted);
    case DataType::kBFloat16:
      return launch_batch_norm<Bf16>(op, gemm, product, batch_norm, device, like, counted);
    default:
      return {};
  }
}

// The same for a z that takes several waves of tiles, of gemm.y.
inline std::optional<std::tuple<Tensor, Tensor>> run_product_with_strips(
    char const* op, Matrices const& matrices, GemmArgs const& gemm, ScaleBias::Args const& product,
    BatchNorm const& batch_norm, Device const& device, Tensor const& y, bool& counted,
    StoredShifts const& stored) {
  switch (matrices.type) {
    case DataType::kFloat16:
      return launch_strips<F16>(op, gemm, product, batch_norm, device, y, counted, stored);
    case DataType::kBFloat16:
      return launch_strips<Bf16>(op, gemm, product, batch_norm, device, y, counted, stored);
    default:
      return {};
  }
}

}  // namespace cutlass_fused
