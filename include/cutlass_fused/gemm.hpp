// The header that was here is gemm/launch.hpp now.
#pragma once

#include "cutlass_fused/gemm/launch.hpp"
