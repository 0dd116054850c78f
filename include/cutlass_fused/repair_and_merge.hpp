// The header that was here is gemm/fp16x3/repair_and_merge.hpp now.
#pragma once

#include "cutlass_fused/gemm/fp16x3/repair_and_merge.hpp"
