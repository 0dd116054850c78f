// The product with a batch norm in training behind it: z, its statistics, and y.
#pragma once

#include "cutlass_fused/epilogue/scale_bias.hpp"
#include "launch/batch_statistics.hpp"
#include "launch/product.hpp"

namespace cutlass_fused {

using TrainResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // y, z, mean, rstd

// What z is normalized into, of y's shape: y itself, or what a softmax reads. Where there are
// `statistics`, that is still to be done.
struct TrainedProduct {
  TrainResult result;
  Matrix rows;  // z, or what is normalized
  std::optional<ComputedStatistics> statistics;
  bool is_empty = false;
};

// Computes z = (x @ weight.T + bias) * scale and its statistics. z is a tensor of its own only if
// `keep_z`; else y is computed in its place. It is returned less a shift for each column if there
// is a `centre` (check_centre), which becomes the mean of what is returned. `is_last`: y is the
// normalized z itself; else 16 bits would be rounded to once more in front of what follows.
TrainedProduct run_linear_train(char const* op, Matrices matrices, ScaleBias::Args const& product,
                                Precision precision, DataType y_type, BatchNorm const& batch_norm,
                                bool keep_z, float* centre, bool is_last, Device const& device);

}  // namespace cutlass_fused
