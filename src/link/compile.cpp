#include "link/compile.hpp"

#include <vector>

#include "link/disk_cache.hpp"
#include "link/nvrtc.hpp"
#include "link/once.hpp"

namespace cutlass_fused::link {
namespace {

// Divisions and roots as IEEE has them, and subnormal numbers kept: NVRTC's defaults.
constexpr char kStandard[] = "--std=c++17";

struct ProgramScope {
  Nvrtc const& nvrtc;
  Nvrtc::Program program = nullptr;
  ~ProgramScope() {
    if (program != nullptr) nvrtc.destroy(&program);
  }
};

std::string read_log(Nvrtc const& nvrtc, Nvrtc::Program program) {
  size_t size = 0;
  if (nvrtc.log_size(program, &size) != 0 || size <= 1) return "";
  std::string log(size, '\0');
  if (nvrtc.log(program, log.data()) != 0) return "";
  log.resize(size - 1);  // without the NUL at its end
  return log;
}

Compiled fail(Nvrtc const& nvrtc, char const* step, Nvrtc::Result result, std::string const& log) {
  Compiled failed;
  failed.error =
      std::string(step) + ": " + nvrtc.describe(result) + (log.empty() ? "" : "\n") + log;
  return failed;
}

Compiled run_nvrtc(Nvrtc const& nvrtc, std::string const& source, std::string const& arch) {
  ProgramScope scope{nvrtc};
  Nvrtc::Result result =
      nvrtc.create(&scope.program, source.c_str(), "cutlass_fused_program.cu", 0, nullptr, nullptr);
  if (result != 0) return fail(nvrtc, "nvrtcCreateProgram", result, "");
  std::string const option = "-arch=" + arch;
  std::vector<char const*> const options = {option.c_str(), kStandard};
  result = nvrtc.compile(scope.program, static_cast<int>(options.size()), options.data());
  if (result != 0) {
    return fail(nvrtc, "nvrtcCompileProgram", result, read_log(nvrtc, scope.program));
  }
  size_t size = 0;
  result = nvrtc.cubin_size(scope.program, &size);
  if (result != 0) return fail(nvrtc, "nvrtcGetCUBINSize", result, "");
  Compiled compiled;
  compiled.cubin.resize(size);
  result = nvrtc.cubin(scope.program, compiled.cubin.data());
  if (result != 0) return fail(nvrtc, "nvrtcGetCUBIN", result, "");
  return compiled;
}

std::string make_key(std::string const& source, std::string const& arch) {
  return arch + " " + kStandard + "\n" + source;
}

Compiled compile_now(std::string const& source, std::string const& arch) {
  FoundNvrtc const& found = find_nvrtc();
  if (!found.is_there) {
    Compiled failed;
    failed.error = "there is no NVRTC: " + found.reason;
    return failed;
  }
  Compiled compiled = run_nvrtc(found.nvrtc, source, arch);
  if (compiled.cubin.empty()) return compiled;
  auto const cache = DiskCache::find();
  compiled.cache_error =
      cache ? cache->write(make_key(source, arch), compiled.cubin) : "there is no home folder";
  return compiled;
}

Compiled read_or_compile(std::string const& source, std::string const& arch) {
  auto const cache = DiskCache::find();
  auto kept = cache ? cache->read(make_key(source, arch)) : std::nullopt;
  if (!kept) return compile_now(source, arch);
  Compiled compiled;
  compiled.cubin = std::move(*kept);
  compiled.is_kept = true;
  return compiled;
}

}  // namespace

std::shared_ptr<Compiled const> compile(std::string const& source, std::string const& arch) {
  static Once<std::shared_ptr<Compiled const>> once;
  return once.get(make_key(source, arch),
                  [&] { return std::make_shared<Compiled const>(read_or_compile(source, arch)); });
}

std::shared_ptr<Compiled const> compile_anew(std::string const& source, std::string const& arch) {
  return std::make_shared<Compiled const>(compile_now(source, arch));
}

}  // namespace cutlass_fused::link
