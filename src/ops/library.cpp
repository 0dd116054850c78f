// The op schemas of cutlass_fused/schemas.txt. The build turns each line into an m.def.
#include <torch/csrc/stable/library.h>

#include "op_namespace.hpp"

STABLE_TORCH_LIBRARY(CUTLASS_FUSED_OP_NAMESPACE, m) {
#include "schemas.inc"
}
