// ScaleBatchNorm:  y = ((acc + bias[n]) * scale[n] - mean[n]) * rstd[n] * gamma[n] + beta[n]
//                  rstd = 1 / sqrt(var + eps)
//
// Two FMAs in fp32, centred before it is scaled:
//
//   y = ((acc + bias) * scale - mean) * a + beta,   a = gamma * rstd
//
// The mean is never folded into one shift d = beta - mean * a: where |mean| is 1e3 times the
// standard deviation, acc * scale * a and d cancel and lose the digits that centring first keeps.
// Nor is the bias folded into the centre: with an infinite scale that would be inf - inf.
// a is derived in the kernel, once per column and tile, from the statistics as they are: nothing
// is cached, so no update of them can be missed.
#pragma once

#include <cmath>

#include "cutlass_fused/epilogue/operands.hpp"

namespace cutlass_fused {

// a[n] = gamma / sqrt(var + eps)
struct BatchNormScale {
  Vector gamma, var;
  float eps;

  struct Raw {
    Vector::Raw gamma, var;
  };
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const { return {gamma.fetch(n), var.fetch(n)}; }
  CUTLASS_FUSED_HOST_DEVICE float convert(Raw raw) const {
    return gamma.convert(raw.gamma) / sqrtf(var.convert(raw.var) + eps);
  }
};

struct ScaleBatchNorm {
  static constexpr char kName[] = "scale_batch_norm";

  struct Fn {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float acc, float bias, float scale, float mean,
                                               float a, float beta) const {
      return fmaf(fmaf(acc + bias, scale, -mean), a, beta);
    }
  };

  using Tree = cutlass_fused::Tree<Compute<Fn>,          // ((acc + bias) * scale - mean) * a + beta
                                   Acc,                  //
                                   Row<Vector>,          // bias
                                   Row<Vector>,          // scale
                                   Row<Vector>,          // mean
                                   Row<BatchNormScale>,  // a = gamma * rstd
                                   Row<Vector>>;         // beta

  struct Args {
    Vector bias = Vector::constant(0.0f);
    Vector scale = Vector::constant(1.0f);
    Vector mean, var;
    Vector gamma = Vector::constant(1.0f);
    Vector beta = Vector::constant(0.0f);
    float eps = 1e-5f;

    auto operands() const {
      return std::make_tuple(Empty{}, bias, scale, mean, BatchNormScale{gamma, var, eps}, beta);
    }
  };
};

}  // namespace cutlass_fused
