// What the library of src/switch asks of this one: whether a product is as well computed by
// PyTorch. Numbers and addresses alone, as the two libraries see different headers of torch.
#pragma once

#include <cstdint>

namespace cutlass_fused {

// x (M, K) @ weight.T, with weight (N, K), of fp32 matrices on a GPU, to a new y, `batch` times.
struct PlainProduct {
  int64_t batch, m, n, k;
  void const *x, *weight;
  int64_t x_strides[3], weight_strides[3];  // the first from one matrix of a batch to the next
  int32_t device;
  bool in_tf32;  // else in fp32
};

// Whether `linear`, or `bmm`, would have cuBLAS compute it, as it lies; false where somebody looks
// at plans. A bias changes nothing: PyTorch has cuBLAS add it within the product, `linear` behind.
using IsByCublas = bool(PlainProduct const*);

}  // namespace cutlass_fused

extern "C"
    __attribute__((visibility("default"))) cutlass_fused::IsByCublas cutlass_fused_is_by_cublas;
