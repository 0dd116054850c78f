// The header that was here is norm/ranges.hpp now.
#pragma once

#include "cutlass_fused/norm/ranges.hpp"
