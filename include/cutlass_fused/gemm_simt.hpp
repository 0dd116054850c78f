// The header that was here is gemm/simt/run.hpp now.
#pragma once

#include "cutlass_fused/gemm/simt/run.hpp"
