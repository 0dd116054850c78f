#include "launch/programs/open_entry.hpp"

#include <memory>

#include "checks/status.hpp"
#include "link/background.hpp"
#include "link/kernel.hpp"
#include "link/once.hpp"
#include "link/open/assemble.hpp"

namespace cutlass_fused {
namespace {

using EntryPointer = std::shared_ptr<OpenEntry const>;
using KernelPointer = std::shared_ptr<link::Kernel const>;

// All that a kernel is made of: a thread that links it has its own.
struct Request {
  program::Program program;
  program::Slots slots;
  OpenKernel const& kernel;  // of the registry, where it stays
  Device device;

  bool is_linked() const {
    return link::is_assembled(link::find_open_kernels(), kernel.name, program, slots,
                              device.compute_capability);
  }
};

link::Kernel fail(std::string error) { return {nullptr, std::move(error)}; }

link::Kernel make_kernel(Request const& request) {
  OpenKernel const& kernel = request.kernel;
  auto const made = link::assemble(link::find_open_kernels(), kernel.name, request.program,
                                   request.slots, request.device.compute_capability);
  if (made->cubin.empty()) return fail(made->error);
  // Another build's pack may lie beside the library.
  if (made->param_bytes != kernel.param_bytes) {
    return fail(kernel.name + " of open_kernels.bin takes " + std::to_string(made->param_bytes) +
                " bytes, and the library hands it " + std::to_string(kernel.param_bytes));
  }
  return link::load_kernel(made->cubin, made->name);
}

void append(std::string& key, int number) {
  key += std::to_string(number);
  key += ' ';
}

// What a kernel differs by: behind the GPU, each of which has to be told of the shared memory.
std::string make_key(std::string const& text, program::Slots const& slots, OpenKernel const& kernel,
                     Device const& device) {
  std::string key;
  key.reserve(64 + kernel.name.size() + slots.types.size() + text.size());
  append(key, device.index);
  append(key, device.compute_capability);
  for (int const slot : slots.of_operands) append(key, slot);
  // By them the arithmetic is chosen.
  for (program::Type const type : slots.outputs) append(key, static_cast<int>(type));
  key += kernel.name;
  key += ' ';
  key += slots.types;
  key += '\n';
  key += text;
  return key;
}

std::string without_gpu(std::string const& of_gpu) { return of_gpu.substr(of_gpu.find(' ') + 1); }

link::Once<EntryPointer>& entries() {
  static auto& once = link::keep_once<EntryPointer>();
  return once;
}

// That of a key, by this thread, or by the one that makes it already.
EntryPointer make_entry(std::string const& of_gpu, Request const& request) {
  static auto& kernels = link::keep_once<KernelPointer>();
  return entries().get(of_gpu, [&] {
    LoadScope const scope;
    auto const found = kernels.get(without_gpu(of_gpu), [&] {
      return std::make_shared<link::Kernel const>(make_kernel(request));
    });
    std::string error = found->error;
    if (error.empty()) {
      error = link::allow_shared_memory(found->kernel, request.kernel.shared_memory,
                                        request.device.index);
    }
    return std::make_shared<OpenEntry const>(error.empty()
                                                 ? OpenEntry{OpenEntry::kLinked, found->kernel}
                                                 : OpenEntry{OpenEntry::kFailed, nullptr, error});
  });
}

// Of those that no call may link, whether one was looked for in vain. Each search reads the disk.
bool is_known_to_miss(std::string const& of_gpu, Request const& request) {
  static auto& missing = link::keep_once<bool>();
  return missing.get(of_gpu, [&] { return !request.is_linked(); });
}

OpenEntry find_linked(std::string const& of_gpu, Request const& request) {
  if (is_known_to_miss(of_gpu, request)) return {OpenEntry::kMissing};
  return *make_entry(of_gpu, request);
}

// It begins the link, unless one has begun or the disk has the kernel.
OpenEntry find_or_begin(std::string const& of_gpu, Request const& request) {
  if (!link::is_in_background(of_gpu)) {
    if (entries().has(of_gpu) || request.is_linked()) return *make_entry(of_gpu, request);
    link::start_in_background(of_gpu, [of_gpu, request] {
      // A thread's first call chooses its GPU.
      (void)cudaSetDevice(request.device.index);
      make_entry(of_gpu, request);
    });
  }
  return {OpenEntry::kPending};
}

}  // namespace

OpenEntry find_open_entry(std::string const& text, program::Program const& program,
                          program::Slots const& slots, OpenKernel const& kernel,
                          Device const& device, LinkWhen when) {
  std::string const of_gpu = make_key(text, slots, kernel, device);
  if (auto const found = entries().peek(of_gpu)) return **found;
  Request const request{program, slots, kernel, device};
  if (when == LinkWhen::kNever) return find_linked(of_gpu, request);
  if (is_capturing(device)) {
    link::wait_for_background(of_gpu);
    if (!entries().has(of_gpu) && !request.is_linked()) return {OpenEntry::kCaptured};
  } else if (when == LinkWhen::kLater) {
    return find_or_begin(of_gpu, request);
  }
  return *make_entry(of_gpu, request);
}

}  // namespace cutlass_fused
