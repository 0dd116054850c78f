#include "link/compile.hpp"

#include <vector>

#include "link/kept/common_kernels.hpp"
#include "link/kept/disk_cache.hpp"
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

}  // namespace

Compiled run_nvrtc(std::string const& source, std::string const& arch,
                   std::vector<std::string> const& options, Form form) {
  FoundNvrtc const& found = find_nvrtc();
  Compiled compiled;
  if (!found.is_there) {
    compiled.error = "there is no NVRTC: " + found.reason;
    return compiled;
  }
  Nvrtc const& nvrtc = found.nvrtc;
  ProgramScope scope{nvrtc};
  Nvrtc::Result result =
      nvrtc.create(&scope.program, source.c_str(), "cutlass_fused_program.cu", 0, nullptr, nullptr);
  if (result != 0) return fail(nvrtc, "nvrtcCreateProgram", result, "");
  std::string const option = "-arch=" + arch;
  std::vector<char const*> given = {option.c_str(), kStandard};
  for (std::string const& each : options) given.push_back(each.c_str());
  result = nvrtc.compile(scope.program, static_cast<int>(given.size()), given.data());
  if (result != 0) {
    return fail(nvrtc, "nvrtcCompileProgram", result, read_log(nvrtc, scope.program));
  }
  bool const is_cubin = form == Form::kCubin;
  size_t size = 0;
  result = (is_cubin ? nvrtc.cubin_size : nvrtc.ptx_size)(scope.program, &size);
  if (result != 0) return fail(nvrtc, "nvrtcGet...Size", result, "");
  compiled.code.resize(size);
  result = (is_cubin ? nvrtc.cubin : nvrtc.ptx)(scope.program, compiled.code.data());
  if (result != 0) return fail(nvrtc, "nvrtcGet...", result, "");
  if (!is_cubin && size > 0) compiled.code.resize(size - 1);  // without the NUL at its end
  return compiled;
}

std::optional<std::string> read_kept(std::string const& key) {
  if (auto linked = DiskCache::find_linked().read(key)) return linked;
  auto const cache = DiskCache::find();
  if (auto kept = cache ? cache->read(key) : std::nullopt) return kept;
  return find_common_kernels().read(key);
}

Compiled read_or_make(std::string const& key, std::function<Compiled()> const& make) {
  if (auto kept = read_kept(key)) {
    Compiled compiled;
    compiled.code = std::move(*kept);
    compiled.is_kept = true;
    return compiled;
  }
  Compiled compiled = make();
  if (compiled.code.empty()) return compiled;
  auto const cache = DiskCache::find();
  compiled.cache_error = cache ? cache->write(key, compiled.code) : "there is no home folder";
  return compiled;
}

namespace {

std::string make_key(std::string const& source, std::string const& arch) {
  return arch + " " + kStandard + "\n" + source;
}

}  // namespace

std::shared_ptr<Compiled const> compile(std::string const& source, std::string const& arch) {
  static auto& once = keep_once<std::shared_ptr<Compiled const>>();
  std::string const key = make_key(source, arch);
  return once.get(key, [&] {
    return std::make_shared<Compiled const>(
        read_or_make(key, [&] { return run_nvrtc(source, arch, {}, Form::kCubin); }));
  });
}

bool is_kept(std::string const& source, std::string const& arch) {
  return read_kept(make_key(source, arch)).has_value();
}

std::shared_ptr<Compiled const> compile_anew(std::string const& source, std::string const& arch) {
  auto compiled = std::make_shared<Compiled>(run_nvrtc(source, arch, {}, Form::kCubin));
  auto const cache = DiskCache::find();
  if (!compiled->code.empty() && cache) {
    compiled->cache_error = cache->write(make_key(source, arch), compiled->code);
  }
  return compiled;
}

}  // namespace cutlass_fused::link
