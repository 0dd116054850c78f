#include "link/kernel.hpp"

#include "link/compile.hpp"
#include "link/driver.hpp"
#include "link/once.hpp"

namespace cutlass_fused::link {
namespace {

Kernel fail(std::string error) { return {nullptr, std::move(error)}; }

Kernel load(Driver const& driver, std::string const& cubin, std::string const& name) {
  CUlibrary library = nullptr;
  CUresult result = driver.load(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) return fail("cuLibraryLoadData: " + describe(driver, result));
  Kernel kernel;
  result = driver.find(&kernel.kernel, library, name.c_str());
  if (result != CUDA_SUCCESS) return fail("cuLibraryGetKernel: " + describe(driver, result));
  return kernel;
}

Kernel make_kernel(std::string const& source, std::string const& name, std::string const& arch) {
  Driver const* const driver = find_driver();
  if (driver == nullptr) return fail("there is no driver of CUDA 12.0 or newer");
  std::shared_ptr<Compiled const> compiled = compile(source, arch);
  if (compiled->cubin.empty()) return fail(compiled->error);
  Kernel kernel = load(*driver, compiled->cubin, name);
  if (kernel.kernel == nullptr && compiled->is_kept) {
    // A newer compiler may have made it, on a machine with a newer driver and the same cache.
    compiled = compile_anew(source, arch);
    kernel = compiled->cubin.empty() ? fail(compiled->error) : load(*driver, compiled->cubin, name);
  }
  return kernel;
}

}  // namespace

std::shared_ptr<Kernel const> find_kernel(std::string const& source, std::string const& name,
                                          std::string const& arch) {
  static Once<std::shared_ptr<Kernel const>> once;
  return once.get(arch + "\n" + name + "\n" + source,
                  [&] { return std::make_shared<Kernel const>(make_kernel(source, name, arch)); });
}

bool load_kernel(Kernel const& kernel) {
  Driver const* const driver = find_driver();
  CUfunction function = nullptr;
  return driver != nullptr && driver->prepare(&function, kernel.kernel) == CUDA_SUCCESS;
}

}  // namespace cutlass_fused::link
