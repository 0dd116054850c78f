// Views of tensors of which no gradient is recorded.
#pragma once

#include <ATen/core/Tensor.h>

namespace cutlass_fused {

// The memory of a tensor in another shape. PyTorch's own views take several calls of its
// dispatcher, of which the last does this.
inline at::Tensor view(at::Tensor const& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor viewed = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  c10::TensorImpl* const impl = viewed.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(sizes, strides);
  return viewed;
}

// b (K, N), or one matrix of b (1, K, N), as `linear` takes it: (N, K).
inline at::Tensor transpose(at::Tensor const& b) {
  int64_t const rows = b.dim() - 2, columns = b.dim() - 1;
  return view(b, {b.size(columns), b.size(rows)}, {b.stride(columns), b.stride(rows)});
}

}  // namespace cutlass_fused
