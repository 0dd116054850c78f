// A kernel's status as an error, and the stream that ops launch on.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include "checks/checks.hpp"
#include "checks/device.hpp"

namespace cutlass_fused {

// Throws unless it is kSuccess.
void check_status(char const* op, Status status);

inline cudaStream_t current_stream(Device const& device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device.index, &stream));
  return static_cast<cudaStream_t>(stream);
}

bool is_capturing(Device const& device);

// The GPU of an op's tensors is the current one as long as this lives.
class DeviceScope {
 public:
  // Throws where the GPU is not supported.
  DeviceScope(char const* op, Tensor const& x)
      : guard_(x.get_device_index()), device_(supported_device(op, x.get_device_index())) {}
  Device const& device() const { return device_; }

 private:
  torch::stable::accelerator::DeviceGuard const guard_;
  Device const& device_;
};

}  // namespace cutlass_fused
