// The header that was here is norm/normalization.hpp now.
#pragma once

#include "cutlass_fused/norm/normalization.hpp"
