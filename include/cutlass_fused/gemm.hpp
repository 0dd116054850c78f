// The header that was here is gemm/run.hpp now.
#pragma once

#include "cutlass_fused/gemm/run.hpp"
