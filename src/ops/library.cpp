// The op schemas of cutlass_fused/schemas.txt. The build turns each line into an m.def.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(cutlass_fused, m) {
#include "schemas.inc"
}
