// THE table of words that a program is written in. A new word is one line here, and a function of
// program/prelude.hpp if one expression does not hold it; tests and the Python package read it.
//
// A signature has a letter for each argument, and behind ">" that of the result: f a float, b a
// bool, n a float that must be a number. $0, $1, ... are the arguments of what is printed.
//
// A word computes what PyTorch's CUDA kernel of that name computes in fp32; where all results are
// rounded to 16 bits, program/prelude_16.hpp computes some of them otherwise. Sums and products are
// intrinsics: of a product and the sum behind it a compiler would make one fma, and PyTorch rounds
// in between.
#pragma once

#include <string_view>

namespace cutlass_fused::program {

struct Word {
  std::string_view name, signature, printed;

  constexpr int count() const { return static_cast<int>(signature.find('>')); }
  constexpr char type_of(int argument) const { return signature[argument]; }
  constexpr char result() const { return signature.back(); }
};

constexpr int kMostArguments = 4;

constexpr Word kWords[] = {
    {"neg", "f>f", "-$0"},
    {"abs", "f>f", "fabsf($0)"},
    {"sqrt", "f>f", "sqrtf($0)"},
    {"rsqrt", "f>f", "rsqrtf($0)"},
    {"reciprocal", "f>f", "1.0f / $0"},
    {"exp", "f>f", "expf($0)"},
    {"exp2", "f>f", "exp2f($0)"},
    {"expm1", "f>f", "expm1f($0)"},
    {"log", "f>f", "logf($0)"},
    {"log2", "f>f", "log2f($0)"},
    {"log10", "f>f", "log10f($0)"},
    {"log1p", "f>f", "log1pf($0)"},
    {"sin", "f>f", "sinf($0)"},
    {"cos", "f>f", "cosf($0)"},
    {"tan", "f>f", "tanf($0)"},
    {"asin", "f>f", "asinf($0)"},
    {"acos", "f>f", "acosf($0)"},
    {"atan", "f>f", "atanf($0)"},
    {"sinh", "f>f", "sinhf($0)"},
    {"cosh", "f>f", "coshf($0)"},
    {"tanh", "f>f", "tanhf($0)"},
    {"asinh", "f>f", "asinhf($0)"},
    {"acosh", "f>f", "acoshf($0)"},
    {"atanh", "f>f", "atanhf($0)"},
    {"sigmoid", "f>f", "cutlass_fused_sigmoid($0)"},
    {"erf", "f>f", "erff($0)"},
    {"erfc", "f>f", "erfcf($0)"},
    {"floor", "f>f", "floorf($0)"},
    {"ceil", "f>f", "ceilf($0)"},
    {"round", "f>f", "nearbyintf($0)"},
    {"trunc", "f>f", "truncf($0)"},
    {"sign", "f>f", "cutlass_fused_sign($0)"},
    {"relu", "f>f", "cutlass_fused_relu($0)"},
    {"gelu", "f>f", "cutlass_fused_gelu($0)"},
    {"gelu_tanh", "f>f", "cutlass_fused_gelu_tanh($0)"},
    {"silu", "f>f", "__fmul_rn($0, cutlass_fused_sigmoid($0))"},
    {"hardswish", "f>f", "cutlass_fused_hardswish($0)"},
    {"hardsigmoid", "f>f", "cutlass_fused_hardsigmoid($0)"},
    {"mish", "f>f", "cutlass_fused_mish($0)"},
    {"log_sigmoid", "f>f", "cutlass_fused_log_sigmoid($0)"},
    {"add", "ff>f", "__fadd_rn($0, $1)"},
    {"sub", "ff>f", "__fsub_rn($0, $1)"},
    {"mul", "ff>f", "__fmul_rn($0, $1)"},
    {"div", "ff>f", "$0 / $1"},       // by a number: program/print.hpp
    {"pow", "ff>f", "powf($0, $1)"},  // a number as exponent: program/print.hpp
    {"maximum", "ff>f", "cutlass_fused_maximum($0, $1)"},
    {"minimum", "ff>f", "cutlass_fused_minimum($0, $1)"},
    {"atan2", "ff>f", "atan2f($0, $1)"},
    {"fmod", "ff>f", "fmodf($0, $1)"},
    {"remainder", "ff>f", "cutlass_fused_remainder($0, $1)"},
    {"prelu", "ff>f", "cutlass_fused_leaky_relu($0, $1)"},
    {"leaky_relu", "fn>f", "cutlass_fused_leaky_relu($0, $1)"},
    {"elu", "fnnn>f", "cutlass_fused_elu($0, $1, $2, $3)"},
    {"softplus", "fnn>f", "cutlass_fused_softplus($0, $1, $2)"},
    {"clamp", "fff>f", "cutlass_fused_clamp($0, $1, $2)"},
    {"hardtanh", "fnn>f", "cutlass_fused_clamp($0, $1, $2)"},
    {"threshold", "fnn>f", "$0 <= $1 ? $2 : $0"},
    {"eq", "ff>b", "$0 == $1"},
    {"ne", "ff>b", "$0 != $1"},
    {"lt", "ff>b", "$0 < $1"},
    {"le", "ff>b", "$0 <= $1"},
    {"gt", "ff>b", "$0 > $1"},
    {"ge", "ff>b", "$0 >= $1"},
    {"not", "b>b", "!$0"},
    {"and", "bb>b", "$0 && $1"},
    {"or", "bb>b", "$0 || $1"},
    {"xor", "bb>b", "$0 != $1"},
    {"where", "bff>f", "$0 ? $1 : $2"},
    {"float", "b>f", "$0 ? 1.0f : 0.0f"},
};

// Of groups of columns, side by side: all elements of a group have its sum, its maximum or its
// minimum, which is NaN where one of them is. Of truths the first or the last that holds in a group
// is true, and no other. n is how many columns a group has. program/rows/print.hpp prints them.
constexpr Word kRowWords[] = {
    {"row_sum", "fn>f", ""},   {"row_max", "fn>f", ""},  {"row_min", "fn>f", ""},
    {"row_first", "bn>b", ""}, {"row_last", "bn>b", ""},
};

// Null: there is no such word.
constexpr Word const* find_word(std::string_view name) {
  for (Word const& word : kWords) {
    if (word.name == name) return &word;
  }
  for (Word const& word : kRowWords) {
    if (word.name == name) return &word;
  }
  return nullptr;
}

constexpr bool is_sound() {
  for (Word const& word : kWords) {
    if (find_word(word.name) != &word) return false;  // listed twice
    if (word.count() > kMostArguments || word.signature.size() != size_t(word.count()) + 2) {
      return false;
    }
  }
  return true;
}
static_assert(is_sound());

}  // namespace cutlass_fused::program
