// The header that was here is common/copy_rows.hpp now.
#pragma once

#include "cutlass_fused/common/copy_rows.hpp"
