#include "launch/programs/open_entry.hpp"

#include <memory>

#include "launch/programs/linking.hpp"
#include "link/kernel.hpp"
#include "link/once.hpp"
#include "link/open/assemble.hpp"

namespace cutlass_fused {
namespace {

link::Kernel fail(std::string error) { return {nullptr, std::move(error)}; }

link::Kernel make_kernel(program::Program const& program, program::Slots const& slots,
                         OpenKernel const& kernel, Device const& device) {
  auto const made = link::assemble(link::find_open_kernels(), kernel.name, program, slots,
                                   device.compute_capability);
  if (made->cubin.empty()) return fail(made->error);
  // Another build's pack may lie beside the library.
  if (made->param_bytes != kernel.param_bytes) {
    return fail(kernel.name + " of open_kernels.bin takes " + std::to_string(made->param_bytes) +
                " bytes, and the library hands it " + std::to_string(kernel.param_bytes));
  }
  return link::load_kernel(made->cubin, made->name);
}

// What a kernel differs by.
std::string make_key(std::string const& text, program::Slots const& slots, OpenKernel const& kernel,
                     Device const& device) {
  std::string key = kernel.name + ' ' + std::to_string(device.compute_capability) + ' ';
  for (int const slot : slots.of_operands) key += std::to_string(slot) + ' ';
  // By them the arithmetic is chosen.
  for (program::Type const type : slots.outputs)
    key += std::to_string(static_cast<int>(type)) + ' ';
  return key + slots.types + '\n' + text;
}

}  // namespace

void const* find_open_entry(char const* op, std::string const& text,
                            program::Program const& program, program::Slots const& slots,
                            OpenKernel const& kernel, Device const& device) {
  // By the GPU too, each of which has to be told of the shared memory.
  static link::Once<void const*> of_devices;
  static link::Once<std::shared_ptr<link::Kernel const>> kernels;
  std::string const key = make_key(text, slots, kernel, device);
  return of_devices.get(std::to_string(device.index) + ' ' + key, [&]() -> void const* {
    auto const found = kernels.get(key, [&] {
      check_capture(op, device, "with as many rows and columns", [&] {
        return link::is_assembled(link::find_open_kernels(), kernel.name, program, slots,
                                  device.compute_capability);
      });
      LoadScope const scope;
      return std::make_shared<link::Kernel const>(make_kernel(program, slots, kernel, device));
    });
    std::string error = found->error;
    if (error.empty()) {
      error = link::allow_shared_memory(found->kernel, kernel.shared_memory, device.index);
    }
    if (error.empty()) return found->kernel;
    warn_of_link(op, "runs behind its product, not within", error);
    return nullptr;
  });
}

}  // namespace cutlass_fused
