// The header that was here is norm/on_chip/plan.hpp now.
#pragma once

#include "cutlass_fused/norm/on_chip/plan.hpp"
