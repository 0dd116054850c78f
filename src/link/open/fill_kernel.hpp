// Puts a program into an open kernel: PTX in which each access to an operand, each store of an
// output and each call of the program is one marked line, `mov...; // CUTLASS_FUSED_<what>
// <words>`, which is replaced as a whole. `slot` is a number of epilogue/open/slots.hpp, `at`
// counts elements:
//
//   USED slot to                   to = whether the program has the slot, or the output
//   FETCH slot to data at value    to = data[at] as it lies in memory, or the number `value`
//   CONVERT slot to raw            to = what was fetched, in fp32
//   LOAD slot to data at is_in     to = data[at] in fp32 where it is in, else 0
//   STORE slot data at is_in from  data[at] = from, where it is in
//   APPLY y y1 y2 acc slots...     the program
//
// What the program lacks is the constant 0, or nothing: the assembler then drops what depended on
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cutlass_fused::link {

// `program`: program_ptx.hpp. `types`: open::kTypes characters, each an open::SlotType.
// Nothing: one of them is not what this says.
std::optional<std::string> fill_kernel(std::string_view kernel, std::string_view program,
                                       std::string_view types);

}  // namespace cutlass_fused::link
