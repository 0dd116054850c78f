#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/mixed/run.hpp"
#include "cutlass_fused/gemm/tf32x3/run.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace cutlass_fused {
namespace {

struct Equal {
  bool operator()(KernelKey const& a, KernelKey const& b) const {
    return a.arch == b.arch && a.math == b.math && a.majors.x == b.majors.x &&
           a.majors.weight == b.majors.weight && a.tile == b.tile && a.epilogue == b.epilogue;
  }
};

struct Hash {
  size_t operator()(KernelKey const& key) const {
    uint64_t hash = key.epilogue.hash;
    for (int word :
         {int(key.arch), int(key.math), int(key.majors.x), int(key.majors.weight), key.tile}) {
      hash = (hash ^ static_cast<uint32_t>(word)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<KernelKey, KernelEntry, Hash, Equal> kernels;
  std::unordered_map<uint64_t, EpilogueEntry> epilogues;
  std::unordered_map<uint64_t, RunTf32x3> tf32x3[kArchs];
  std::unordered_map<int, OpenKernel const*> open_tf32x3[2];  // by tile, of either precision
  std::unordered_map<uint64_t, RunMixed> mixed;
};

// Made by the first who asks, which may be before the initializers of this file, and never
// destroyed: threads may still call while the process ends.
Registry& registry() {
  static auto* const registry = new Registry;
  return *registry;
}

template <class Map, class Key, class Entry>
bool add(Map& map, Key const& key, Entry const& entry) {
  std::unique_lock<std::shared_mutex> const lock(registry().mutex);
  return map.emplace(key, entry).second;
}

template <class Map, class Key>
auto find(Map const& map, Key const& key) -> decltype(&map.begin()->second) {
  std::shared_lock<std::shared_mutex> const lock(registry().mutex);
  auto const found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

bool register_kernel(KernelKey const& key, KernelEntry const& entry) {
  return add(registry().kernels, key, entry);
}

bool register_epilogue(EpilogueId epilogue, EpilogueEntry const& entry) {
  return add(registry().epilogues, epilogue.hash, entry);
}

bool register_tf32x3(ArchId arch, EpilogueId epilogue, RunTf32x3 run) {
  return add(registry().tf32x3[int(arch)], epilogue.hash, run);
}

RunTf32x3 find_tf32x3(ArchId arch, EpilogueId epilogue) {
  RunTf32x3 const* const found = find(registry().tf32x3[int(arch)], epilogue.hash);
  return found == nullptr ? nullptr : *found;
}

bool register_open_tf32x3(int tile, bool in_tf32, OpenKernel const* kernel) {
  return add(registry().open_tf32x3[in_tf32], tile, kernel);
}

OpenKernel const* find_open_tf32x3(int tile, bool in_tf32) {
  OpenKernel const* const* const found = find(registry().open_tf32x3[in_tf32], tile);
  return found == nullptr ? nullptr : *found;
}

bool register_mixed(EpilogueId epilogue, RunMixed run) {
  return add(registry().mixed, epilogue.hash, run);
}

RunMixed find_mixed(EpilogueId epilogue) {
  RunMixed const* const found = find(registry().mixed, epilogue.hash);
  return found == nullptr ? nullptr : *found;
}

KernelEntry const* find_kernel(KernelKey const& key) { return find(registry().kernels, key); }

EpilogueEntry const* find_epilogue(EpilogueId epilogue) {
  return find(registry().epilogues, epilogue.hash);
}

}  // namespace cutlass_fused

// What was registered, for tests: no header declares it, and no kernel is called through it.
#define CUTLASS_FUSED_EXPORT extern "C" __attribute__((visibility("default")))

CUTLASS_FUSED_EXPORT bool cutlass_fused_has_kernel(int arch, int math, int tile,
                                                   char const* epilogue) {
  using namespace cutlass_fused;
  return find_kernel({ArchId(arch), MathId(math), {}, tile, epilogue}) != nullptr;
}

CUTLASS_FUSED_EXPORT bool cutlass_fused_has_tf32x3(int arch, char const* epilogue) {
  using namespace cutlass_fused;
  return find_tf32x3(ArchId(arch), EpilogueId{epilogue}) != nullptr;
}

// Of a kernel with an open epilogue: its name, the bytes of its parameter and of its shared memory,
// and whether it reads a source.
static char const* describe(cutlass_fused::OpenKernel const* kernel, int (*numbers)[3]) {
  if (kernel == nullptr) return nullptr;
  (*numbers)[0] = kernel->param_bytes;
  (*numbers)[1] = kernel->shared_memory;
  (*numbers)[2] = kernel->reads_source;
  return kernel->name.c_str();
}

CUTLASS_FUSED_EXPORT char const* cutlass_fused_open_kernel(int arch, int math, int tile,
                                                           int (*numbers)[3]) {
  using namespace cutlass_fused;
  KernelEntry const* const entry =
      find_kernel({ArchId(arch), MathId(math), {}, tile, names::kOpen});
  return describe(entry == nullptr ? nullptr : entry->open, numbers);
}

CUTLASS_FUSED_EXPORT char const* cutlass_fused_open_tf32x3(int tile, bool in_tf32,
                                                           int (*numbers)[3]) {
  return describe(cutlass_fused::find_open_tf32x3(tile, in_tf32), numbers);
}

CUTLASS_FUSED_EXPORT bool cutlass_fused_has_epilogue(char const* epilogue) {
  return cutlass_fused::find_epilogue(epilogue) != nullptr;
}
