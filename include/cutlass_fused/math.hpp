// The header that was here is common/math.hpp now.
#pragma once

#include "cutlass_fused/common/math.hpp"
