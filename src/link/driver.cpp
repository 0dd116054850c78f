#include "link/driver.hpp"

#include <dlfcn.h>

#include <optional>

namespace cutlass_fused::link {
namespace {

template <class Function>
bool load(void* library, Function& function, char const* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::optional<Driver> open() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return {};
  Driver driver{};
  bool const is_whole = load(library, driver.describe, "cuGetErrorString") &&
                        load(library, driver.load, "cuLibraryLoadData") &&
                        load(library, driver.find, "cuLibraryGetKernel") &&
                        load(library, driver.prepare, "cuKernelGetFunction") &&
                        load(library, driver.find_device, "cuDeviceGet") &&
                        load(library, driver.set_attribute, "cuKernelSetAttribute") &&
                        load(library, driver.launch, "cuLaunchKernelEx");
  return is_whole ? std::optional<Driver>(driver) : std::nullopt;
}

}  // namespace

Driver const* find_driver() {
  static std::optional<Driver> const driver = open();
  return driver ? &*driver : nullptr;
}

std::string describe(Driver const& driver, CUresult result) {
  char const* text = nullptr;
  bool const is_known = driver.describe(result, &text) == CUDA_SUCCESS && text != nullptr;
  return is_known ? text : "error " + std::to_string(static_cast<int>(result));
}

}  // namespace cutlass_fused::link
