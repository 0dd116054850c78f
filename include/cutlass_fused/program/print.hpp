// A program as the text of a device function in CUDA C++, for NVRTC without any header:
//
//   __device__ __forceinline__ void cutlass_fused_program(float const acc, float const* const p,
//                                                         float* const y)
//
// p has the elements of the operands, y takes the outputs, and may be p. Nothing of the program's
// own text is in there: its names are made from indices, and numbers are printed by their bits.
// No option for fast maths may be set. Contraction to fma may be on, as it is by default: no
// product of a line is contracted with a sum of another.
//
// Where all results are rounded to 16 bits, program/prelude_16.hpp has other functions.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cutlass_fused/program/arithmetic.hpp"
#include "cutlass_fused/program/numbers.hpp"
#include "cutlass_fused/program/prelude.hpp"
#include "cutlass_fused/program/prelude_16.hpp"
#include "cutlass_fused/program/program.hpp"

namespace cutlass_fused::program {

inline std::string print_argument(Argument const& argument) {
  switch (argument.kind) {
    case Argument::kAcc:
      return "acc";
    case Argument::kOperand:
      return "p" + std::to_string(argument.index);
    case Argument::kLine:
      return "v" + std::to_string(argument.index);
    case Argument::kNumber:
      break;
  }
  return print_number(argument.number);
}

// PyTorch knows some exponents by their value: 0 and 1 (pow in Pow.cpp), and in PowKernel.cu
// 1/2, -1/2 and -1 as a double, 2, 3 and -2 as a float.
inline std::string_view find_power(double exponent) {
  if (exponent == 0) return "1.0f";
  if (exponent == 1) return "$0";
  if (exponent == 0.5) return "sqrtf($0)";
  if (exponent == -0.5) return "rsqrtf($0)";
  if (exponent == -1) return "1.0f / $0";
  float const rounded = static_cast<float>(exponent);
  if (rounded == 2) return "__fmul_rn($0, $0)";
  if (rounded == 3) return "__fmul_rn(__fmul_rn($0, $0), $0)";
  if (rounded == -2) return "1.0f / __fmul_rn($0, $0)";
  return {};
}

inline std::string_view find_power_16(double exponent) {
  if (exponent == 0.5) return find_word_16("sqrt")->printed;
  if (exponent == -1) return find_word_16("reciprocal")->printed;
  float const rounded = static_cast<float>(exponent);
  if (rounded == -2) return "cutlass_fused_approx_reciprocal(__fmul_rn($0, $0))";
  std::string_view const power = find_power(exponent);
  if (!power.empty()) return power;
  bool const is_whole = rounded == std::floor(rounded);  // as infinities are
  if (is_whole || !(std::fabs(rounded) <= kMostExponent16)) return {};
  return "cutlass_fused_pow_16($0, $1)";
}

// As find_printed.
inline std::string_view find_printed_16(Line const& line, bool has_number) {
  std::string_view const name = line.word->name;
  if (has_number && name == "pow") return find_power_16(line.arguments[1].number);
  if (has_number && name == "div") return {};
  Word16 const* const word = find_word_16(name);
  return word == nullptr ? std::string_view{} : word->printed;
}

// What the line prints, with $0, $1, ... for its arguments.
inline std::string_view find_printed(Line const& line, Arithmetic arithmetic) {
  bool const has_number = line.arguments.size() == 2 && line.arguments[1].kind == Argument::kNumber;
  if (arithmetic == Arithmetic::kFor16Bits) {
    std::string_view const printed = find_printed_16(line, has_number);
    if (!printed.empty()) return printed;
  }
  if (has_number && line.word->name == "pow") {
    std::string_view const power = find_power(line.arguments[1].number);
    if (!power.empty()) return power;
  }
  // PyTorch multiplies by the reciprocal of a number (BinaryDivTrueKernel.cu).
  if (has_number && line.word->name == "div") return "__fmul_rn($0, 1.0f / $1)";
  return line.word->printed;
}

// `name`: what stands for an argument.
template <class Name>
std::string print_line(Line const& line, Arithmetic arithmetic, Name const& name) {
  std::string_view const printed = find_printed(line, arithmetic);
  std::string text;
  for (size_t i = 0; i < printed.size(); ++i) {
    if (printed[i] != '$') {
      text += printed[i];
    } else {
      text += name(line.arguments[printed[++i] - '0']);
    }
  }
  return text;
}

inline std::string print_body(Program const& program, Arithmetic arithmetic) {
  std::string text;
  std::vector<bool> const exact = find_exact_lines(program);
  for (int i = 0; i < program.operands; ++i) {
    std::string const index = std::to_string(i);
    text += "  float const p" + index + " = p[" + index + "];\n";
  }
  for (size_t i = 0; i < program.lines.size(); ++i) {
    Line const& line = program.lines[i];
    text += line.word->result() == 'b' ? "  bool const v" : "  float const v";
    text += std::to_string(i) + " = " +
            print_line(line, exact[i] ? Arithmetic::kAsPyTorch : arithmetic, print_argument) +
            ";\n";
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    text += "  y[" + std::to_string(i) + "] = " + print_argument(program.outputs[i]) + ";\n";
  }
  return text;
}

// In front of `text`, those of the functions that it calls. They call others of the list that stand
// in front of them.
template <size_t kCount>
std::string with_functions(std::string_view const (&functions)[kCount], std::string text) {
  for (size_t i = kCount; i-- > 0;) {
    std::string const call = std::string(name_of_function(functions[i])) + "(";
    if (text.find(call) == std::string::npos) continue;
    // Without the newline that it starts with.
    text = std::string(functions[i].substr(1)) + "\n\n" + text;
  }
  return text;
}

// With the functions that it calls, and no others; without instructions where `has_instructions`
// is false, for a host's compiler, which tests hand others.
inline std::string print(Program const& program, Arithmetic arithmetic,
                         bool has_instructions = true) {
  std::string text =
      "__device__ __forceinline__ void cutlass_fused_program(\n"
      "    float const acc, float const* const p, float* const y) {\n" +
      print_body(program, arithmetic) + "}\n";
  text = with_functions(kPrelude16, with_functions(kPrelude, std::move(text)));
  return has_instructions ? with_functions(kInstructions, std::move(text)) : text;
}

}  // namespace cutlass_fused::program
