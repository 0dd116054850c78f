// The header that was here is gemm/batch_norm.hpp now.
#pragma once

#include "cutlass_fused/gemm/batch_norm.hpp"
