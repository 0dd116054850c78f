#include "link/kernel.hpp"

#include "link/compile.hpp"
#include "link/driver.hpp"
#include "link/once.hpp"

namespace cutlass_fused::link {
namespace {

Kernel fail(std::string error) { return {nullptr, std::move(error)}; }

}  // namespace

Kernel load_kernel(std::string const& cubin, std::string const& name) {
  Driver const* const driver = find_driver();
  if (driver == nullptr) return fail("there is no driver of CUDA 12.0 or newer");
  CUlibrary library = nullptr;
  CUresult result = driver->load(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) return fail("cuLibraryLoadData: " + describe(*driver, result));
  Kernel kernel;
  result = driver->find(&kernel.kernel, library, name.c_str());
  if (result != CUDA_SUCCESS) return fail("cuLibraryGetKernel: " + describe(*driver, result));
  // Now, where the driver would else load it at its first launch.
  CUfunction function = nullptr;
  result = driver->prepare(&function, kernel.kernel);
  if (result != CUDA_SUCCESS) return fail("cuKernelGetFunction: " + describe(*driver, result));
  return kernel;
}

bool prepare_kernel(Kernel const& kernel) {
  Driver const* const driver = find_driver();
  CUfunction function = nullptr;
  return driver != nullptr && driver->prepare(&function, kernel.kernel) == CUDA_SUCCESS;
}

std::string allow_shared_memory(CUkernel kernel, int bytes, int device) {
  Driver const& driver = *find_driver();
  CUdevice found = 0;
  CUresult result = driver.find_device(&found, device);
  if (result != CUDA_SUCCESS) return "cuDeviceGet: " + describe(driver, result);
  result =
      driver.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, kernel, found);
  return result == CUDA_SUCCESS ? "" : "cuKernelSetAttribute: " + describe(driver, result);
}

std::shared_ptr<Kernel const> find_kernel(std::string const& source, std::string const& name,
                                          std::string const& arch) {
  static auto& once = keep_once<std::shared_ptr<Kernel const>>();
  return once.get(arch + "\n" + name + "\n" + source, [&] {
    std::shared_ptr<Compiled const> compiled = compile(source, arch);
    auto const load = [&] {
      return compiled->code.empty() ? fail(compiled->error) : load_kernel(compiled->code, name);
    };
    Kernel kernel = load();
    if (kernel.kernel == nullptr && compiled->is_kept) {
      // A newer compiler may have made it, on a machine with a newer driver and the same cache.
      compiled = compile_anew(source, arch);
      kernel = load();
    }
    return std::make_shared<Kernel const>(kernel);
  });
}

}  // namespace cutlass_fused::link
