// The header that was here is norm/batch_norm.hpp now.
#pragma once

#include "cutlass_fused/norm/batch_norm.hpp"
