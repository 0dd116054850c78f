// New tensors on the device of another one.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <vector>

#include "checks/checks.hpp"

namespace cutlass_fused {

// Contiguous and uninitialised. By one call of PyTorch's dispatcher: torch::stable::new_empty takes
// two.
inline Tensor allocate(Tensor const& like, std::vector<int64_t> const& shape, ScalarType type) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] > 1 ? shape[i] : 1;
  }
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  int32_t const dtype = torch::stable::detail::to<int32_t>(torch::stable::detail::from(type));
  AtenTensorHandle tensor = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(shape.size()), shape.data(),
                                                  strides.data(), dtype, device_type,
                                                  like.get_device_index(), &tensor));
  return Tensor(tensor);
}

}  // namespace cutlass_fused
