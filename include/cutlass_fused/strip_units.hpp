// The header that was here is norm/strip_units.hpp now.
#pragma once

#include "cutlass_fused/norm/strip_units.hpp"
