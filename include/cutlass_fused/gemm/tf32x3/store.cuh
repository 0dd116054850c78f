// From complete sums to y: the epilogue, and what is not finite.
#pragma once

#include <algorithm>
#include <cmath>

#include "cutlass_fused/common/piece.cuh"
#include "cutlass_fused/common/store.cuh"
#include "cutlass_fused/epilogue/elements/columns.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/gemm/tf32x3/operands.hpp"

namespace cutlass_fused {

template <class Epilogue>
struct Tf32x3Params;

namespace tf32x3 {

// Stores rows of four neighbouring columns, from n on.
template <Major kMajorX, Major kMajorWeight, class Epilogue, class X = float>
class Store {
 public:
  using Operands = Columns<typename Epilogue::Tree>;
  static constexpr bool kFetches = Operands::kTiles > 0;

  // What the epilogue reads for four neighbouring outputs alone.
  struct Elements {
    typename Operands::Elements of_column[4];
  };

  __device__ Store(Tf32x3Params<Epilogue> const& params, int batch, int n)
      : params_(params), batch_(batch), n_(n) {
    if (params.is_bare) return;
    int64_t const last = params.product.n - 1;
    int64_t const columns[4] = {n, std::min<int64_t>(n + 1, last), std::min<int64_t>(n + 2, last),
                                std::min<int64_t>(n + 3, last)};
    Operands::load(params.operands, columns, values_, 4);
  }

  __device__ static bool are_finite(float4 const& sums) {
    return isfinite(sums.x) && isfinite(sums.y) && isfinite(sums.z) && isfinite(sums.w);
  }

  // Asks for what the outputs of a row need: for several rows, before the first is stored.
  __device__ Elements fetch(int m) const {
    Elements elements{};
    if constexpr (kFetches) {
      int const last = int(params_.product.n) - 1;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        elements.of_column[i] =
            Operands::fetch(params_.operands, m, std::min(n_ + i, last), batch_);
      }
    }
    return elements;
  }

  __device__ void operator()(int m, float4 sums, Elements const& elements) const {
    FloatProduct const& product = params_.product;
    if constexpr (OpenCall<Epilogue>::kIsOpen) {
      // The text of such a kernel is one function, and y is of fp32.
      if (!are_finite(sums)) sums = repair(product, batch_, m, n_, sums);
      store_floats(m, sums, elements);
    } else {
      if (!are_finite(sums)) sums = repair_apart(product, batch_, m, n_, sums);
      if (product.y_type == DataType::kFloat32) return store_floats(m, sums, elements);
      store_rounded(m, sums, elements);
    }
  }

  // What is finite, to y of fp32.
  __device__ void store_floats(int m, float4 sums, Elements const& elements) const {
    apply_epilogue(m, sums, elements);
    float* const y = static_cast<float*>(params_.product.y) + find_offset(m);
    int const count = int(params_.product.n) - n_;
    if (params_.stores_whole_pieces && count >= 4) {
      *reinterpret_cast<float4*>(y) = sums;
    } else {
      y[0] = sums.x;
      if (count > 1) y[1] = sums.y;
      if (count > 2) y[2] = sums.z;
      if (count > 3) y[3] = sums.w;
    }
  }

 private:
  __device__ void store_rounded(int m, float4 sums, Elements const& elements) const {
    FloatProduct const& product = params_.product;
    apply_epilogue(m, sums, elements);
    int64_t const offset = find_offset(m);
    int const count = int(product.n) - n_;
    if constexpr (sizeof(X) == 2) {
      if (params_.stores_whole_pieces && count >= 4) return store_narrow(product, offset, sums);
    }
    store_elements(product, offset, count, sums);
  }
  __device__ void apply_epilogue(int m, float4& sums, Elements const& elements) const {
    if (params_.is_bare) return;
    auto const apply = [&](int i, float sum) {
      return Operands::apply(params_.operands, values_ + i, 4, sum, m, n_ + i,
                             elements.of_column[i]);
    };
    sums = {apply(0, sums.x), apply(1, sums.y), apply(2, sums.z), apply(3, sums.w)};
  }
  __device__ int64_t find_offset(int m) const {
    return batch_ * params_.product.y_batch_stride + m * params_.product.ldy + n_;
  }

  // y has the type of x.
  __device__ static void store_narrow(FloatProduct const& product, int64_t offset, float4 sums) {
    alignas(8) X const four[4] = {round_to<X>(sums.x), round_to<X>(sums.y), round_to<X>(sums.z),
                                  round_to<X>(sums.w)};
    *reinterpret_cast<uint2*>(static_cast<X*>(product.y) + offset) =
        *reinterpret_cast<uint2 const*>(four);
  }

  // The rare ways below are functions of their own, to keep what every block runs through short.
  __device__ __noinline__ static void store_elements(FloatProduct const& product, int64_t offset,
                                                     int count, float4 sums) {
#pragma unroll 1
    for (int i = 0; i < 4 && i < count; ++i) {
      store_from_float(product.y, offset + i, product.y_type, sums.x);
      sums = {sums.y, sums.z, sums.w, 0.0f};
    }
  }

  __device__ __noinline__ static float4 repair_apart(FloatProduct const& product, int batch, int m,
                                                     int n, float4 sums) {
    return repair(product, batch, m, n, sums);
  }

  // What is not finite, in plain fp32: where a number is infinite, or scaled becomes so, its lo is
  // NaN. A sum that is NaN remains so.
  __device__ __forceinline__ static float4 repair(FloatProduct const& product, int batch, int m,
                                                  int n, float4 sums) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      float sum = sums.x;
      if (!isfinite(sum) && n + i < product.n) {
        sum = 0.0f;
#pragma unroll 1
        for (int k = 0; k < product.k && !isnan(sum); ++k) {
          sum = fmaf(read<kMajorX, X>(product.x, batch, m, k),
                     read<kMajorWeight, float>(product.weight, batch, n + i, k), sum);
        }
      }
      sums = {sums.y, sums.z, sums.w, sum};
    }
    return sums;
  }

  template <Major kMajor, class T>
  __device__ static float read(FloatOperand const& operand, int batch, int row, int k) {
    int64_t const at = kMajor == Major::kK ? row * operand.ld + k : k * operand.ld + row;
    return to_float(reinterpret_cast<T const*>(operand.data)[batch * operand.batch_stride + at]);
  }

  Tf32x3Params<Epilogue> const& params_;
  int batch_, n_;
  float values_[4 * (Operands::kRows > 0 ? Operands::kRows : 1)];
};

}  // namespace tf32x3
}  // namespace cutlass_fused
