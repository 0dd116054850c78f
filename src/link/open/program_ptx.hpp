// A program as NVRTC compiled it, taken apart: PTX of one .entry, whose body reads and writes
// elements by marked lines that program/slots.hpp prints.
//
//   mov.f32 %f1, 0f00000000; // CUTLASS_FUSED_IN 3      (0: acc, n + 1: slot n)
//   mov.f32 %f5, %f5; // CUTLASS_FUSED_OUT 0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cutlass_fused::link {

struct ProgramPtx {
  // Text, and what stands behind it in each call of the program.
  struct Piece {
    enum Behind { kNothing, kOutput, kInput, kCall };  // kCall: the number of the call
    std::string text;
    Behind behind;
    int index = 0;  // of the output; of the input: 0 is acc, n + 1 slot n
  };

  std::string tables;  // of the module: .global lines that functions read
  std::string locals;  // of the body: memory of its own, which all calls share
  std::vector<Piece> body;
};

// Nothing: it is not what this says, as where another compiler wrote it.
std::optional<ProgramPtx> parse_program(std::string_view ptx);

}  // namespace cutlass_fused::link
