// The header that was here is epilogue/elements/apply.hpp now.
#pragma once

#include "cutlass_fused/epilogue/elements/apply.hpp"
