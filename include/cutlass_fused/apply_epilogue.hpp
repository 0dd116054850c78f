// The header that was here is epilogue/apply.hpp now.
#pragma once

#include "cutlass_fused/epilogue/apply.hpp"
