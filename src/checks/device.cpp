#include "checks/device.hpp"

#include <cuda_runtime.h>
#include <torch/headeronly/util/Exception.h>

#include <map>
#include <mutex>
#include <string>

namespace cutlass_fused {
namespace {

// The runtime is in the library, and runs on no driver that is older than its major version.
std::string describe(cudaError_t error) {
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  int version = 0;
  bool const is_there = cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
  std::string const found = is_there ? "one of CUDA " + std::to_string(version / 1000) + "." +
                                           std::to_string(version % 1000 / 10)
                                     : "none";
  std::string const cuda = std::to_string(CUDART_VERSION / 1000);
  return "the driver must run CUDA " + cuda + ", which this library was built with, got " + found +
         "; install driver " + (CUDART_VERSION >= 13000 ? "580" : "525") +
         " or newer, or build with the nvcc of an older CUDA";
}

int attribute(char const* op, cudaDeviceAttr which, int index) {
  int value = 0;
  cudaError_t const error = cudaDeviceGetAttribute(&value, which, index);
  STD_TORCH_CHECK(error == cudaSuccess, op, ": cannot query GPU cuda:", index, ": ",
                  describe(error));
  return value;
}

// By both edges of its clock. Where the driver does not tell, that of the estimates.
int read_memory_gb_s(int index) {
  int khz = 0, bits = 0;
  bool const is_told =
      cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, index) == cudaSuccess &&
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index) == cudaSuccess &&
      khz > 0 && bits > 0;
  if (!is_told) (void)cudaGetLastError();
  return is_told ? static_cast<int>(int64_t(khz) * 2 * bits / 8 / 1000000) : Device::kTimedGbS;
}

Device query(char const* op, int index) {
  int const compute_capability = attribute(op, cudaDevAttrComputeCapabilityMajor, index) * 10 +
                                 attribute(op, cudaDevAttrComputeCapabilityMinor, index);
  Device const device{index,
                      attribute(op, cudaDevAttrMultiProcessorCount, index),
                      attribute(op, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
                      compute_capability,
                      code_for(compute_capability),
                      archs_for(compute_capability),
                      read_memory_gb_s(index)};
  std::string const found = "cuda:" + std::to_string(index) + " has compute capability " +
                            std::to_string(device.compute_capability / 10) + "." +
                            std::to_string(device.compute_capability % 10);
  STD_TORCH_CHECK(device.compute_capability >= 80, op,
                  ": the GPU must have compute capability 8.0 or newer, got ", found);
  STD_TORCH_CHECK(has_code_for(device.compute_capability), op, ": the GPU must be one of ",
                  compiled_architectures(), ", which this build was compiled for, got ", found,
                  "; rebuild with CUTLASS_FUSED_ARCHS naming it");
  return device;
}

}  // namespace

Device const& supported_device(char const* op, int index) {
  static std::mutex mutex;
  static std::map<int, Device> devices;  // a map never moves what it holds
  std::lock_guard<std::mutex> const lock(mutex);
  auto found = devices.find(index);
  if (found == devices.end()) found = devices.emplace(index, query(op, index)).first;
  return found->second;
}

}  // namespace cutlass_fused
