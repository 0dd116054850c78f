// Declarations only: batch norm over the rows of a matrix, for ops.
//
// In training three kernels follow each other: partial statistics of ranges of rows, their merge
// (which also moves the running statistics), and the normalization. Behind a product that finds the
// partial statistics the first is missing; of split rows repair_and_merge.hpp has the second. Where
// the matrix fits on chip one kernel does it all: norm/on_chip/plan.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/norm/ranges.hpp"
#include "cutlass_fused/norm/normalization.hpp"
#include "cutlass_fused/common/types.hpp"

namespace cutlass_fused {

// A running statistic (N,) to be updated in place, or nothing.
struct RunningVector {
  void* data = nullptr;
  int64_t stride = 0;
  DataType type = DataType::kFloat32;
};

// running = (1 - momentum) * running + momentum * batch, the variance unbiased.
struct RunningStatistics {
  RunningVector mean, var;
  int64_t* num_batches_tracked = nullptr;  // counted up, if there is one
  double momentum = 0.1;
  bool cumulative = false;  // momentum is 1 / num_batches_tracked: the mean of all batches
};

// What a batch's statistics are needed for: fp32 vectors (N,), contiguous.
struct BatchStatistics {
  float* mean;
  float* rstd;  // 1 / sqrt(biased variance + eps)
  float* a;     // gamma * rstd
  float* d;     // beta, to be read as the others; null: not wanted
};

// Less bias[n] * scale[n] a z of 16 bits is stored: what a bias adds to a column changes nothing
// that is normalized, but rounds it.
struct ColumnShift {
  Vector bias = Vector::constant(0.0f), scale = Vector::constant(1.0f);

  struct Raw {
    Vector::Raw bias, scale;
  };
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const { return {bias.fetch(n), scale.fetch(n)}; }
  CUTLASS_FUSED_HOST_DEVICE double convert(Raw const& raw) const {
    return double(bias.convert(raw.bias)) * double(scale.convert(raw.scale));
  }
};
// A column that the shift makes NaN, as an infinite one does.
CUTLASS_FUSED_HOST_DEVICE double spoilt_by(double shift) { return shift - shift; }

// What is to be done about a z that its product stored less shifts, of every column, and of tiles:
// run_merge_statistics stores all of a column less that of its first range. Hardly ever is there
// anything to do: a column whose mean is not far has none.
struct StoredShifts {
  ColumnShift column;
  float const* shifts = nullptr;  // of PartPointers; null: z is stored as it is
  float* centre = nullptr;        // written: (N,), the mean of z as it is stored; null: not wanted
  int* moved = nullptr;           // written: of every kColumnsOfMerge columns, whether z was stored
                                  // anew; run_normalize_strips needs none
};
constexpr int kColumnsOfMerge = 32;

// The workspace of the two kernels below holds Ranges::bytes, 8-byte aligned.
template <DataType kIn>
Status run_column_statistics(Matrix const& x, Ranges const& ranges, void* workspace,
                             int64_t* num_batches_tracked, Device const& device,
                             cudaStream_t stream);

// Where the partial statistics come from: run_column_statistics, or the product that computed x, of
// which some elements may have been repaired since. Behind a product this kernel counts the batch,
// unless the mean is cumulative: then it must have been counted before.
enum class PartialsFrom { kColumns, kRepairedProduct };

Status run_merge_statistics(Matrix const& x, Ranges const& ranges, PartialsFrom from,
                            void const* workspace, Vector const& gamma, Vector const& beta,
                            float eps, RunningStatistics const& running,
                            BatchStatistics const& statistics, StoredShifts const& stored,
                            Device const& device, cudaStream_t stream);

// For an empty batch, and in front of what finds statistics without run_column_statistics.
Status run_count_batch(int64_t* num_batches_tracked, Device const& device, cudaStream_t stream);

// y = map(x), a map of normalization.hpp, for x of the type kIn. y is a contiguous matrix like x,
// of x's type; it may be x itself, if that is contiguous.
template <DataType kIn, class Map>
Status run_normalize(Matrix const& x, Map const& map, void* y, BehindKernel behind,
                     Device const& device, cudaStream_t stream);

}  // namespace cutlass_fused
