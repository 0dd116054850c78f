// The names of epilogues that a plan asks for by itself, beside those that ops name.
#pragma once

#include "cutlass_fused/epilogue/id.hpp"

namespace cutlass_fused::names {

constexpr EpilogueId kScaleLeakyReLU{"scale_leaky_relu"};
constexpr EpilogueId kAddScaled{"add_scaled"};
constexpr EpilogueId kOpen{"open"};  // by kernels that are made while the library runs
constexpr EpilogueId kScaleBatchNorm{"scale_batch_norm"};
constexpr EpilogueId kStatistics{"scale_bias.statistics"};   // z, and the statistics of its tiles
constexpr EpilogueId kBatchNormInGroup{"batch_norm.group"};  // all of a batch norm in training
constexpr EpilogueId kLogits{"scale_batch_norm.logits"};     // in fp32, for a softmax to read

}  // namespace cutlass_fused::names
