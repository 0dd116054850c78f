// The header that was here is norm/strips.hpp now.
#pragma once

#include "cutlass_fused/norm/strips.hpp"
