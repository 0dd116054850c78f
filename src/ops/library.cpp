// The op schemas of cutlass_fused/schemas.txt. The build turns each line into an m.def.
#include <torch/csrc/stable/library.h>

#include "op_namespace.hpp"

// The macro of torch 2.10 takes its argument's own letters for the name, so it is given the
// namespace itself and no macro of that.
#define DEFINE_OPS(name, m) STABLE_TORCH_LIBRARY(name, m)

DEFINE_OPS(CUTLASS_FUSED_OP_NAMESPACE, m) {
#include "schemas.inc"
}
