// The header that was here is common/types.hpp now.
#pragma once

#include "cutlass_fused/common/types.hpp"
