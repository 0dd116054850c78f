// A program as an open kernel takes it: which slot of the kernel each operand goes into, and the
// source around the program that names them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cutlass_fused/epilogue/open/slots.hpp"
#include "cutlass_fused/program/pointwise.hpp"

namespace cutlass_fused::program {

struct OpenOperand {
  Element element;
  // Of a tile: whether it lies as y does, with y's type and rows of whole pieces of 16 bytes.
  bool lies_as_y = false;
};

struct Slots {
  std::vector<int> of_operands;
  std::string types;          // open::kTypes characters, each an open::SlotType
  std::vector<Type> outputs;  // y's type first, which is no slot's
};

inline char slot_type(Type type) {
  switch (type) {
    case Type::kFloat32:
      return open::kFloat32;
    case Type::kFloat16:
      return open::kFloat16;
    case Type::kBFloat16:
      break;
  }
  return open::kBFloat16;
}

// The first free slot; -1: none.
inline int find_free(Slots const& slots, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    if (slots.types[static_cast<size_t>(i)] == open::kNone) return i;
  }
  return -1;
}

// Of a scalar: one of its own, else a row's or a column's, which a stride of 0 makes a scalar.
inline int find_scalar_slot(Slots const& slots) {
  int slot = find_free(slots, open::kFirstScalar, open::kScalars);
  if (slot < 0) slot = find_free(slots, open::kFirstRow, open::kRows);
  return slot < 0 ? find_free(slots, open::kFirstColumn, open::kColumns) : slot;
}

// Nothing: the kernel has no room for them. `outputs`: types, y's first. `loads_by_tma`: the kernel
// reads the first tile as it writes y, which only one that lies as y does allows; others go into
// the second.
inline std::optional<Slots> choose_slots(std::vector<OpenOperand> const& operands,
                                         std::vector<Type> const& outputs, bool loads_by_tma) {
  if (outputs.empty() || outputs.size() > open::kOutputs) return {};
  Slots slots;
  slots.types.assign(open::kTypes, open::kNone);
  slots.of_operands.assign(operands.size(), -1);
  slots.outputs = outputs;
  auto const take = [&](size_t operand, int slot) {
    if (slot < 0) return false;
    slots.of_operands[operand] = slot;
    slots.types[static_cast<size_t>(slot)] = slot_type(operands[operand].element.type);
    return true;
  };
  auto const take_all = [&](Kind kind, auto const& find) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].element.kind != kind || slots.of_operands[i] >= 0) continue;
      if (!take(i, find(operands[i]))) return false;
    }
    return true;
  };
  // Of two tiles, the one that the first slot suits takes it, in whichever order they come.
  for (size_t i = 0; i < operands.size() && loads_by_tma; ++i) {
    bool const suits = operands[i].element.kind == Kind::kTile && operands[i].lies_as_y;
    if (suits && take(i, open::kFirstTile)) break;
  }
  int const skipped = loads_by_tma ? 1 : 0;
  bool const has_room =
      take_all(Kind::kTile,
               [&](auto const&) {
                 return find_free(slots, open::kFirstTile + skipped, open::kTiles - skipped);
               }) &&
      take_all(Kind::kRow,
               [&](auto const&) { return find_free(slots, open::kFirstRow, open::kRows); }) &&
      take_all(Kind::kColumn,
               [&](auto const&) { return find_free(slots, open::kFirstColumn, open::kColumns); }) &&
      take_all(Kind::kScalar, [&](auto const&) { return find_scalar_slot(slots); });
  if (!has_room) return {};
  for (size_t i = 1; i < outputs.size(); ++i) {
    slots.types[static_cast<size_t>(open::kFirstOutput) + i] = slot_type(outputs[i]);
  }
  return slots;
}

// The marked lines that link/open/program_ptx.hpp finds again.
constexpr char kMarkedLines[] = R"(
template <int kIndex>
__device__ __forceinline__ float in() {
  float value;
  asm volatile("mov.f32 %0, 0f00000000; // CUTLASS_FUSED_IN %1" : "=f"(value) : "n"(kIndex));
  return value;
}
template <int kIndex>
__device__ __forceinline__ void out(float value) {
  asm volatile("mov.f32 %0, %0; // CUTLASS_FUSED_OUT %1" ::"f"(value), "n"(kIndex));
}

)";

// The program, and a kernel that reads acc and its operands by marked lines, and writes by them.
inline std::string print_in_slots(Program const& program, Slots const& slots) {
  std::string operands, stores;
  for (int const slot : slots.of_operands) {
    operands += (operands.empty() ? "" : ", ") + ("in<" + std::to_string(slot + 1) + ">()");
  }
  std::string const count = std::to_string(program.outputs.size());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    std::string const index = std::to_string(i);
    stores += "  out<" + index + ">(y[" + index + "]);\n";
  }
  return print(program, choose_arithmetic(program, slots.outputs)) + kMarkedLines +
         "extern \"C\" __global__ void cutlass_fused_in_slots() {\n"
         "  float const acc = in<0>();\n"
         "  float const p[] = {" +
         (operands.empty() ? "0.0f" : operands) + "};\n  float y[" + count +
         "];\n  cutlass_fused_program(acc, p, y);\n" + stores + "}\n";
}

}  // namespace cutlass_fused::program
