// What is added to a product: beta * c, with c of any shape that broadcasts to that of the product.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cutlass_fused/epilogue/add_scaled.hpp"
#include "checks/checks.hpp"
#include "launch/allocate.hpp"

namespace cutlass_fused {

// x, weight and c are of fp32, and on one device.
inline void check_floats(char const* op, Tensor const& c, Tensor const& x, Tensor const& weight) {
  auto const check = [&](char const* name, Tensor const& tensor) {
    STD_TORCH_CHECK(tensor.scalar_type() == ScalarType::Float, op, ": ", name,
                    " must be float32, got ", dtype_string(tensor.scalar_type()));
    check_device(op, name, tensor, x);
  };
  check("x", x);
  check("weight", weight);
  check("c", c);
}

// The product's shape is (M, N) or (B, M, N).
inline void check_broadcast(char const* op, Tensor const& c, std::vector<int64_t> const& shape) {
  int64_t const missing = int64_t(shape.size()) - c.dim();
  bool fits = missing >= 0;
  for (int64_t i = 0; fits && i < c.dim(); ++i) {
    fits = c.size(i) == 1 || c.size(i) == shape[size_t(i + missing)];
  }
  STD_TORCH_CHECK(fits, op, ": c must broadcast to the shape of the product, ", shape_string(shape),
                  ", got shape ", shape_string(c));
}

// y: contiguous, of the product's shape and of fp32.
inline void check_y(char const* op, Tensor const& y, Tensor const& x,
                    std::vector<int64_t> const& shape) {
  std::vector<int64_t> const found(y.sizes().begin(), y.sizes().end());
  STD_TORCH_CHECK(found == shape, op, ": y must have the shape of the product, ",
                  shape_string(shape), ", got shape ", shape_string(found));
  check_device(op, "y", y, x);
  STD_TORCH_CHECK(y.scalar_type() == ScalarType::Float, op, ": y must be float32, got ",
                  dtype_string(y.scalar_type()));
  STD_TORCH_CHECK(y.is_contiguous(), op, ": y must be contiguous, got strides ", strides_string(y));
}

// c as an operand of a product of this shape: 0 between elements that it lacks.
inline StridedMatrix view_added(Tensor const& c, std::vector<int64_t> const& shape) {
  auto const stride = [&](int64_t from_the_right) {
    int64_t const i = c.dim() - from_the_right;
    return i >= 0 && c.size(i) > 1 ? c.stride(i) : 0;
  };
  return {static_cast<float const*>(c.const_data_ptr()), stride(2), stride(1),
          shape.size() > 2 ? stride(3) : 0};
}

// How the memory of c lies to that of y, which is contiguous.
enum class Overlap {
  kNone,
  kSame,  // c is y: each element lies where the result of its own place goes
  kOther
};

inline Overlap find_overlap(Tensor const& c, Tensor const& y) {
  auto const find_end = [](Tensor const& tensor) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      if (tensor.size(i) == 0) return static_cast<float const*>(tensor.const_data_ptr());
      last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    return static_cast<float const*>(tensor.const_data_ptr()) + last + 1;
  };
  auto const begin = [](Tensor const& tensor) {
    return static_cast<float const*>(tensor.const_data_ptr());
  };
  if (find_end(c) <= begin(y) || find_end(y) <= begin(c)) return Overlap::kNone;
  bool const is_same =
      begin(c) == begin(y) && c.numel() == y.numel() && c.is_contiguous() &&
      std::equal(c.sizes().begin(), c.sizes().end(), y.sizes().begin(), y.sizes().end());
  return is_same ? Overlap::kSame : Overlap::kOther;
}

// What AddScaled is called with, and c while kernels may still have to be launched.
struct Added {
  AddScaled::Args args;
  Tensor c;
  bool is_y = false;  // c is the tensor that the result goes to
};

// As PyTorch refuses what float32 has no number for.
inline void check_factors(char const* op, double beta, double alpha) {
  auto const check = [&](char const* name, double factor) {
    STD_TORCH_CHECK(
        std::isinf(factor) || !(std::abs(factor) > double(std::numeric_limits<float>::max())), op,
        ": ", name, " must be within the range of float32, got ", factor);
  };
  check("beta", beta);
  check("alpha", alpha);
}

// Where beta is 0, c is not read. A c that overlaps y otherwise than as y itself is copied.
inline Added make_added(Tensor c, Tensor const& y, std::vector<int64_t> const& shape, double alpha,
                        double beta) {
  Added added{{{}, float(alpha), float(beta)}, c};
  if (beta == 0.0) return added;
  Overlap const overlap = find_overlap(c, y);
  if (overlap == Overlap::kOther) {
    added.c =
        allocate(c, std::vector<int64_t>(c.sizes().begin(), c.sizes().end()), ScalarType::Float);
    torch::stable::copy_(added.c, c);
  }
  added.is_y = overlap == Overlap::kSame;
  added.args.c = view_added(added.c, shape);
  return added;
}

}  // namespace cutlass_fused
