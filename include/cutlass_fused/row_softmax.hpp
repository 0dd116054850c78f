// The header that was here is softmax/row_softmax.hpp now.
#pragma once

#include "cutlass_fused/softmax/row_softmax.hpp"
