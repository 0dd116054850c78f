// What stands in front of a row softmax, or alone: a map per column, computed in fp32. As of an
// epilogue's operands (operands.hpp), to ask for a column's values and to convert them are two
// steps.
#pragma once

#include <cmath>

#include "cutlass_fused/epilogue/scale_batch_norm.hpp"

namespace cutlass_fused {

// What stands in the stream in front of a kernel that applies a map.
struct BehindKernel {
  // run_merge_statistics or run_repair_and_merge, which let the next kernel start when x is
  // complete: rows of x are then read while they merge.
  bool merges = false;
  // Whether they stored x anew, so that these rows must be read again: StoredShifts.
  int const* moved = nullptr;
};

// v = x
struct Identity {
  struct Column {
    CUTLASS_FUSED_HOST_DEVICE float operator()(float x) const { return x; }
  };

  struct Raw {};
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t) const { return {}; }
  CUTLASS_FUSED_HOST_DEVICE Column convert(Raw) const { return {}; }
  CUTLASS_FUSED_HOST_DEVICE float factor() const { return 1.0f; }
};

// v = x * scale, one scale for all columns: a thread keeps nothing of them.
struct Scaled {
  Vector scale = Vector::constant(1.0f);  // of which element 0 is read

  using Column = Identity::Column;
  using Raw = Identity::Raw;
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t) const { return {}; }
  CUTLASS_FUSED_HOST_DEVICE Column convert(Raw) const { return {}; }
  CUTLASS_FUSED_HOST_DEVICE float factor() const { return scale(0); }
};

// v = (x - mean[n]) * a[n] + d[n]
//
// Centred before it is scaled: epilogue/scale_batch_norm.hpp says why.
template <class Scale>
struct NormalizationBy {
  Vector mean = Vector::constant(0.0f);
  Scale a;
  Vector d = Vector::constant(0.0f);

  // What a thread keeps of a column that it meets in many rows.
  struct Column {
    float mean, a, d;
    CUTLASS_FUSED_HOST_DEVICE float operator()(float x) const { return fmaf(x - mean, a, d); }
  };

  struct Raw {
    Vector::Raw mean, d;
    typename Scale::Raw a;
  };
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const {
    return {mean.fetch(n), d.fetch(n), a.fetch(n)};
  }
  CUTLASS_FUSED_HOST_DEVICE Column convert(Raw const& raw) const {
    return {mean.convert(raw.mean), a.convert(raw.a), d.convert(raw.d)};
  }
};

// With a given, as the statistics of a batch are; and with a = gamma / sqrt(var + eps).
using Normalization = NormalizationBy<Vector>;
using RunningNormalization = NormalizationBy<BatchNormScale>;

// v = ((x - mean[n]) * a[n] + d[n]) * scale[n]
//
// The scale is a factor of its own, as in the model; multiplied into a and d, an infinite one would
// make NaN where PyTorch has an infinity.
struct ScaledNormalization {
  Normalization normalization;
  Vector scale = Vector::constant(1.0f);

  struct Column {
    Normalization::Column column;
    float scale;
    CUTLASS_FUSED_HOST_DEVICE float operator()(float x) const { return column(x) * scale; }
  };

  struct Raw {
    Normalization::Raw normalization;
    Vector::Raw scale;
  };
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const {
    return {normalization.fetch(n), scale.fetch(n)};
  }
  CUTLASS_FUSED_HOST_DEVICE Column convert(Raw const& raw) const {
    return {normalization.convert(raw.normalization), scale.convert(raw.scale)};
  }
};

// A Normalization of which one scale serves all columns, so that a thread keeps it once. Its
// vectors are fp32, contiguous and 16-byte aligned, as compute_statistics allocates them: a load
// takes four columns, with a quarter of the loads and of the instructions.
struct UniformNormalization {
  float const *mean, *a, *d;
  Vector scale;  // of which element 0 is read

  static bool fits(ScaledNormalization const& map) {
    auto const is_plain = [](Vector const& vector) {
      return vector.data != nullptr && vector.stride == 1 && vector.type == DataType::kFloat32 &&
             reinterpret_cast<uintptr_t>(vector.data) % 16 == 0;
    };
    Normalization const& normalization = map.normalization;
    return is_plain(normalization.mean) && is_plain(normalization.a) && is_plain(normalization.d) &&
           (map.scale.data == nullptr || map.scale.stride == 0);
  }
  explicit UniformNormalization(ScaledNormalization const& map)
      : mean(static_cast<float const*>(map.normalization.mean.data)),
        a(static_cast<float const*>(map.normalization.a.data)),
        d(static_cast<float const*>(map.normalization.d.data)),
        scale(map.scale) {}

  using Column = Normalization::Column;
  using Raw = Column;
  CUTLASS_FUSED_HOST_DEVICE Raw fetch(int64_t n) const { return {mean[n], a[n], d[n]}; }
  CUTLASS_FUSED_HOST_DEVICE Column convert(Raw const& raw) const { return raw; }
  CUTLASS_FUSED_HOST_DEVICE float factor() const { return scale(0); }
};

}  // namespace cutlass_fused
