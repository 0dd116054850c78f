#include "link/kernel.hpp"

#include "link/compile.hpp"
#include "link/driver.hpp"
#include "link/once.hpp"

namespace cutlass_fused::link {
namespace {

Kernel fail(std::string error) { return {nullptr, std::move(error)}; }

Kernel make_kernel(std::string const& source, std::string const& name, std::string const& arch) {
  Driver const* const driver = find_driver();
  if (driver == nullptr) return fail("there is no driver of CUDA 12.0 or newer");
  std::shared_ptr<Compiled const> const compiled = compile(source, arch);
  if (compiled->cubin.empty()) return fail(compiled->error);
  CUlibrary library = nullptr;
  CUresult result =
      driver->load(&library, compiled->cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
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

}  // namespace

std::shared_ptr<Kernel const> find_kernel(std::string const& source, std::string const& name,
                                          std::string const& arch) {
  static Once<std::shared_ptr<Kernel const>> once;
  return once.get(arch + "\n" + name + "\n" + source,
                  [&] { return std::make_shared<Kernel const>(make_kernel(source, name, arch)); });
}

}  // namespace cutlass_fused::link
