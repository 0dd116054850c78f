#include "checks/status.hpp"

namespace cutlass_fused {

void check_status(char const* op, Status status) {
  switch (status) {
    case Status::kSuccess:
      return;
    case Status::kUnknownTile:
      STD_TORCH_CHECK(
          false, op, ": the forced tile must be one that this element type and ",
          "precision have, and that can read these operands and write y; see what begins ",
          "with tiles_ in build_info()");
    case Status::kNoKernel:
      STD_TORCH_CHECK(false, op, ": the GPU must have 99 KiB of shared memory per block");
    case Status::kNoDescriptor:
    case Status::kCudaError:
      STD_TORCH_CHECK(false, op, ": CUDA error: ", cudaGetErrorString(cudaGetLastError()),
                      " (compiled for ", compiled_architectures(), ")");
  }
}

bool is_capturing(Device const& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(current_stream(device), &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream may not be asked while another one is captured
  return true;
}

}  // namespace cutlass_fused
