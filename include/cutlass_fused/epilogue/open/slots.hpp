// What an open epilogue's operands are numbered by, and how many of a kind a kernel takes. The host
// side (src/link) and calls.hpp know these numbers too: the marked lines hold them.
#pragma once

namespace cutlass_fused::open {

// One value per column, per row, per call and per output. Twelve slots take 20% less time to
// compile than twenty.
constexpr int kRows = 4, kColumns = 2, kScalars = 4, kTiles = 2;
constexpr int kFirstRow = 0, kFirstColumn = kFirstRow + kRows,
              kFirstScalar = kFirstColumn + kColumns, kFirstTile = kFirstScalar + kScalars,
              kSlots = kFirstTile + kTiles;
constexpr int kOutputs = 3;               // y, and those of y's shape beside it, ...
constexpr int kFirstOutput = kSlots - 1;  // ... whose types follow those of the slots
constexpr int kSourceSlot = kFirstTile;   // by TMA, of kernels that read a source (OpenKernel)
constexpr int kTypes = kSlots + kOutputs - 1;

// Of a slot or an output beside y: a character each in a text of kTypes.
enum SlotType : char {
  kNone = '0',     // the program has no such operand or output
  kFloat32 = '1',  // in memory
  kFloat16 = '2',
  kBFloat16 = '3',
  kByValue = '4'  // a number that the host has, in no memory
};

}  // namespace cutlass_fused::open
