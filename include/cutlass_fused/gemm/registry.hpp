// The kernels of products, by what they compute: those that were compiled register themselves when
// the library is loaded, others may do so later.
#pragma once

#include <string>

#include "cutlass_fused/common/math.hpp"
#include "cutlass_fused/epilogue/id.hpp"
#include "cutlass_fused/gemm/fp16x3/split_rows.hpp"
#include "cutlass_fused/gemm/launch.hpp"
#include "cutlass_fused/plan/problem.hpp"

namespace cutlass_fused {

// Tiles that no table has: the kernels for rows aligned to 4 and to 2 bytes, of which there is one
// each, and those with a tile of their own.
constexpr int kNarrow4Tile = -4, kNarrow2Tile = -2;
constexpr int kOwnTile = 0;

struct Majors {
  Major x = Major::kK, weight = Major::kK;
};

struct KernelKey {
  ArchId arch;
  MathId math;
  Majors majors;
  int tile;  // index into the generation's table
  EpilogueId epilogue;
};

// A kernel that is not in the library: it is made of a text in open_kernels.bin and of a program
// (epilogue/open/open.hpp).
struct OpenKernel {
  std::string name;   // in open_kernels.bin
  int shared_memory;  // bytes that it must be allowed before it is launched
  int param_bytes;    // of its one parameter
  bool reads_source;  // its first matrix comes by TMA
};

struct KernelEntry {
  // Bytes of device memory that a launch needs (stream-K's partial sums); 0 for most.
  size_t (*workspace)(GemmArgs const&, Device const&);
  // Launches y = epilogue(x @ weight.T) on the stream. Never synchronises.
  Status (*launch)(ProductLaunch const&);
  OpenKernel const* open = nullptr;  // of an open epilogue
};

// What an epilogue is needed for beside its kernels on tensor cores.
struct EpilogueEntry {
  // y = epilogue(x @ weight.T) of fp32 matrices, or, with a K of 0, of any.
  Status (*multiply_simt)(GemmArgs const&, void const* args, Device const&, cudaStream_t);
  // y = epilogue(acc), acc being contiguous: of so many products of a batch.
  Status (*apply)(GemmArgs const&, int64_t batch, float const* acc, void const* args, Device const&,
                  cudaStream_t);
  // Behind a product of split rows: repair_rows.hpp.
  Status (*repair_rows)(GemmArgs const&, void const* args, SplitMatrix const& x,
                        SplitMatrix const& weight, Device const&, cudaStream_t);
  // The kernels that repair_rows launches, of an open epilogue: the second where the weight is
  // there as split rows alone.
  OpenKernel const* repairs[2] = {};
};

// Any thread may register and look up. A second kernel of one key replaces nothing: false.
bool register_kernel(KernelKey const& key, KernelEntry const& entry);
bool register_epilogue(EpilogueId epilogue, EpilogueEntry const& entry);

// Runs the call, which registers something, when the library is loaded.
#define CUTLASS_FUSED_JOIN(a, b) a##b
#define CUTLASS_FUSED_JOIN_LINE(a, line) CUTLASS_FUSED_JOIN(a, line)
#define CUTLASS_FUSED_REGISTER(...) \
  [[maybe_unused]] static bool const CUTLASS_FUSED_JOIN_LINE(registered_, __LINE__) = (__VA_ARGS__)

// Null: there is none. What is found stays for ever.
KernelEntry const* find_kernel(KernelKey const& key);
EpilogueEntry const* find_epilogue(EpilogueId epilogue);

}  // namespace cutlass_fused
