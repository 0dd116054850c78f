#include "link/open/assemble.hpp"

#include "link/compile.hpp"
#include "link/once.hpp"
#include "link/open/fill_kernel.hpp"
#include "link/open/kernel_source.hpp"
#include "link/open/ptx_lines.hpp"

namespace cutlass_fused::link {
namespace {

// Another number where the same texts give other machine code: when fill_kernel.cpp or
// kernel_source.cpp write something else.
constexpr char kVersion[] = "open kernel 1\n";

// Of PTX: NVRTC takes 2 s for 1 MB on a slow core. Where a program is that long, its arithmetic
// takes longer than the memory that a pass behind the product reads and writes.
constexpr size_t kMostFilledBytes = 2500000;

Compiled fail(std::string error) {
  Compiled failed;
  failed.error = std::move(error);
  return failed;
}

// "sm_90a" -> "compute_90a": PTX is for a virtual architecture.
std::string virtual_arch(std::string const& arch) { return "compute" + arch.substr(2); }

Compiled make(Assembled const& begun, PackedKernel const& packed, std::string const& source,
              std::string const& types, std::string const& arch) {
  auto const text = unpack(packed.text);
  if (!text) return fail("the open kernel " + begun.name + " is damaged");
  auto const signature = read_signature(*text);
  if (!signature || signature->name != begun.name ||
      to_number(signature->bytes) != begun.param_bytes) {
    return fail("the open kernel " + begun.name + " is not PTX of one kernel");
  }
  // Each operation rounds by itself, as PyTorch's kernels do one after the other.
  Compiled const program = run_nvrtc(source, virtual_arch(arch), {"-fmad=false"}, Form::kPtx);
  if (program.code.empty()) return program;
  auto const filled = fill_kernel(*text, program.code, types);
  if (!filled) return fail("NVRTC's PTX of the program, or the open kernel, is not as expected");
  if (filled->size() > kMostFilledBytes) {
    return fail("the program is too long: its kernel would be " + std::to_string(filled->size()) +
                " bytes of PTX, and " + std::to_string(kMostFilledBytes) + " are the most");
  }
  std::string const kernel = make_kernel_source(*filled);
  if (kernel.empty()) return fail("the open kernel is not PTX of one kernel");
  return run_nvrtc(kernel, arch, {}, Form::kCubin);
}

// What a kernel is assembled for; empty: that GPU does not run it. One for sm_90a runs on no other,
// one for compute_80 on all that came later.
std::string find_arch(std::string const& kernel_arch, int compute_capability) {
  std::string const arch = "sm_" + std::to_string(compute_capability);
  if (begins_with(kernel_arch, "compute_")) return arch;
  return kernel_arch == arch + 'a' ? kernel_arch : "";
}

// What is to be assembled; with an error where nothing can be.
struct Request {
  Assembled begun;  // all but the machine code
  PackedKernel const* packed = nullptr;
  std::string arch, key;
};

Request prepare(OpenKernels const& kernels, std::string const& kernel, std::string const& source,
                std::string const& types, int compute_capability) {
  Request request;
  std::string& error = request.begun.error;
  PackedKernel const* const packed = request.packed = kernels.find(kernel);
  if (packed == nullptr) {
    std::string const& of_all = kernels.error();
    error = "there is no open kernel " + kernel + (of_all.empty() ? "" : ": ") + of_all;
    return request;
  }
  request.arch = find_arch(packed->arch, compute_capability);
  if (request.arch.empty()) {
    error = "the open kernel " + kernel + " is for " + packed->arch + ", and the GPU is " +
            std::to_string(compute_capability);
    return request;
  }
  request.begun.name = kernel;
  request.begun.param_bytes = packed->param_bytes;
  request.key = kVersion + request.arch + ' ' + types + '\n' + packed->text.sum + '\n' + source;
  return request;
}

Assembled make_or_read(Request request, std::string const& source, std::string const& types) {
  Assembled assembled = std::move(request.begun);
  if (!assembled.error.empty()) return assembled;
  Compiled compiled = read_or_make(
      request.key, [&] { return make(assembled, *request.packed, source, types, request.arch); });
  assembled.cubin = std::move(compiled.code);
  assembled.error = std::move(compiled.error);
  assembled.is_kept = compiled.is_kept;
  assembled.cache_error = std::move(compiled.cache_error);
  return assembled;
}

}  // namespace

bool is_assembled(OpenKernels const& kernels, std::string const& kernel,
                  program::Program const& program, program::Slots const& slots,
                  int compute_capability) {
  Request const request =
      prepare(kernels, kernel, print_in_slots(program, slots), slots.types, compute_capability);
  return request.begun.error.empty() && read_kept(request.key).has_value();
}

std::shared_ptr<Assembled const> assemble(OpenKernels const& kernels, std::string const& kernel,
                                          program::Program const& program,
                                          program::Slots const& slots, int compute_capability) {
  static auto& once = keep_once<std::shared_ptr<Assembled const>>();
  std::string const source = print_in_slots(program, slots);
  std::string const gpu = std::to_string(compute_capability);
  return once.get(gpu + ' ' + slots.types + ' ' + kernel + '\n' + source, [&] {
    return std::make_shared<Assembled const>(make_or_read(
        prepare(kernels, kernel, source, slots.types, compute_capability), source, slots.types));
  });
}

}  // namespace cutlass_fused::link
