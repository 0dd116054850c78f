#include "link/nvrtc.hpp"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <vector>

namespace cutlass_fused::link {
namespace {

// What is printed is plain enough for either.
constexpr int kMajors[] = {13, 12};

std::string name_library(char const* stem, int major) {
  return std::string(stem) + ".so." + std::to_string(major);
}

// Of the library that an address lies in, with a slash behind it; empty: not known.
std::string folder_of(void const* address) {
  Dl_info info{};
  char resolved[PATH_MAX];
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr ||
      realpath(info.dli_fname, resolved) == nullptr) {
    return {};
  }
  std::string const path = resolved;
  return path.substr(0, path.rfind('/') + 1);
}

// Where cuBLAS lies, which PyTorch has loaded; empty: it has not.
std::string find_cublas(int major) {
  void* const cublas = dlopen(name_library("libcublas", major).c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (cublas == nullptr) return {};
  std::string const folder = folder_of(dlsym(cublas, "cublasCreate_v2"));
  dlclose(cublas);
  return folder;
}

// PyTorch's own first, whose CUDA the driver serves: beside its cuBLAS, as wheels of CUDA 13 have
// it, or in a folder of its own, as those of CUDA 12 do. Else by its name, what the loader finds.
// CUTLASS_FUSED_NVRTC names another in place of all these.
std::vector<std::string> list_places() {
  if (char const* const named = std::getenv("CUTLASS_FUSED_NVRTC"); named != nullptr) {
    return {named};
  }
  std::vector<std::string> places;
  for (int const major : kMajors) {
    std::string const folder = find_cublas(major), name = name_library("libnvrtc", major);
    if (folder.empty()) continue;
    places.push_back(folder + name);
    places.push_back(folder + "../../cuda_nvrtc/lib/" + name);
    places.push_back(name);
  }
  for (int const major : kMajors) places.push_back(name_library("libnvrtc", major));
  return places;
}

class Library {
 public:
  explicit Library(std::string const& place) : handle_(dlopen(place.c_str(), RTLD_NOW)) {}

  bool is_open() const { return handle_ != nullptr; }

  template <class Function>
  void load(Function& function, char const* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr) missing_ = name;
  }
  std::string const& missing() const { return missing_; }

 private:
  void* handle_;  // for the life of the process
  std::string missing_;
};

// It opens the file of its built-in functions by name alone, which only finds that of a wheel once
// it is loaded.
void open_builtins(Nvrtc const& nvrtc) {
  std::string const folder = folder_of(reinterpret_cast<void const*>(nvrtc.version));
  std::string const name =
      "libnvrtc-builtins.so." + std::to_string(nvrtc.major) + "." + std::to_string(nvrtc.minor);
  dlopen((folder + name).c_str(), RTLD_NOW);
}

FoundNvrtc load(std::string const& place) {
  FoundNvrtc found;
  Library library(place);
  if (!library.is_open()) {
    found.reason = dlerror();
    return found;
  }
  Nvrtc& nvrtc = found.nvrtc;
  library.load(nvrtc.version, "nvrtcVersion");
  library.load(nvrtc.describe, "nvrtcGetErrorString");
  library.load(nvrtc.create, "nvrtcCreateProgram");
  library.load(nvrtc.compile, "nvrtcCompileProgram");
  library.load(nvrtc.destroy, "nvrtcDestroyProgram");
  library.load(nvrtc.log_size, "nvrtcGetProgramLogSize");
  library.load(nvrtc.log, "nvrtcGetProgramLog");
  library.load(nvrtc.ptx_size, "nvrtcGetPTXSize");
  library.load(nvrtc.ptx, "nvrtcGetPTX");
  library.load(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  library.load(nvrtc.cubin, "nvrtcGetCUBIN");
  if (!library.missing().empty()) {
    found.reason = place + " has no " + library.missing();
  } else if (nvrtc.version(&nvrtc.major, &nvrtc.minor) != 0) {
    found.reason = place + " does not tell its version";
  } else {
    nvrtc.path = folder_of(reinterpret_cast<void const*>(nvrtc.version)) +
                 place.substr(place.rfind('/') + 1);
    open_builtins(nvrtc);
    found.is_there = true;
  }
  return found;
}

FoundNvrtc search() {
  std::string reasons;
  for (std::string const& place : list_places()) {
    FoundNvrtc found = load(place);
    if (found.is_there) return found;
    reasons += (reasons.empty() ? "" : "; ") + found.reason;
  }
  FoundNvrtc none;
  none.reason = reasons;
  return none;
}

}  // namespace

FoundNvrtc const& find_nvrtc() {
  // Never destroyed: a thread may link until the process has ended.
  static auto const* const found = new FoundNvrtc(search());
  return *found;
}

}  // namespace cutlass_fused::link
