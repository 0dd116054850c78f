// Open:  y(m, n), y1(m, n), y2(m, n) = program(acc, operands at (m, n))
//
// The epilogue of kernels whose program comes later. nvcc compiles such a kernel to PTX, in which
// every place that depends on the program is a marked line (calls.hpp); while the library runs,
// src/link puts a program there, and has the kernel assembled. What the program has no operand for,
// and what reads that, is gone from it then.
#pragma once

#include "cutlass_fused/epilogue/open/slots.hpp"
#include "cutlass_fused/epilogue/operands.hpp"
#include "cutlass_fused/gemm/launch.hpp"

#if defined(__CUDACC__)
#include "cutlass_fused/epilogue/open/calls.hpp"
#endif

namespace cutlass_fused {

// A vector or a number of a program: a source (operands.hpp) whose type the program says.
template <int kSlot>
struct OpenVector {
  void const* data = nullptr;
  int64_t stride = 0;
  float value = 0.0f;  // of a number that the host has

  using Raw = uint32_t;
#if defined(__CUDACC__)
  __device__ static bool is_used() { return open::is_used<kSlot>(); }
  __device__ Raw fetch(int64_t i) const {
    return open::fetch<kSlot>(data, i * stride, __float_as_uint(value));
  }
  __device__ float convert(Raw raw) const { return open::convert<kSlot>(raw); }
#endif
};

// A matrix of y's shape, of any strides.
template <int kSlot>
struct OpenTile {
  void const* data = nullptr;
  int64_t row_stride = 0, column_stride = 0;

#if defined(__CUDACC__)
  // Elements beside the matrix are 0.
  __device__ float load(int64_t m, int64_t n, bool is_in) const {
    return open::load<kSlot>(data, m * row_stride + n * column_stride, is_in);
  }
  // There is no batch.
  __device__ float operator()(int64_t m, int64_t n, int64_t = 0) const { return load(m, n, true); }
#endif
};

// The outputs beside y: rows of elements that lie side by side, as many as y has.
struct OpenOutputs {
  struct Output {
    void* data = nullptr;
    int64_t ld = 0;
  };
  Output outputs[open::kOutputs - 1];
  int rows = 0, columns = 0;

  // Where the values of one element go. Beside y nothing is written.
  struct Place {
    OpenOutputs const* to;
    int m, n;

#if defined(__CUDACC__)
    template <int kOutput>
    __device__ void write(float value) const {
      Output const& output = to->outputs[kOutput - 1];
      bool const is_in = m < to->rows && n < to->columns;
      open::store<open::kFirstOutput + kOutput>(output.data, m * output.ld + n, is_in, value);
    }
#endif
  };
};

// A word: where an element stands, for the functor to write there.
struct Places {};
template <>
struct OperandArgs<Places> {
  using type = OpenOutputs;
};
template <>
struct OperandValue<Places> {
  CUTLASS_FUSED_HOST_DEVICE static OpenOutputs::Place get(OpenOutputs const& outputs, float,
                                                          int64_t m, int64_t n) {
    return {&outputs, int(m), int(n)};
  }
};

// A word: one value, which may lie in the GPU's memory.
template <class Vector>
struct Number {};
template <class Vector>
struct OperandArgs<Number<Vector>> {
  using type = Vector;
};
template <class Vector>
struct OperandValue<Number<Vector>> {
  CUTLASS_FUSED_HOST_DEVICE static float get(Vector const& vector, float, int64_t, int64_t) {
    return read(vector, 0);
  }
};

struct Open {
  static constexpr char kName[] = "open";

  struct Fn {
#if defined(__CUDACC__)
    // A place has write<kOutput>(value).
    template <class Place, class... Values>
    __device__ float operator()(float acc, Place const& place, Values... values) const {
      static_assert(sizeof...(Values) == open::kSlots && open::kOutputs == 3);
      float const slots[] = {values...};
      float y[open::kOutputs];
      open::apply(acc, slots, y);
      place.write<1>(y[1]);
      place.write<2>(y[2]);
      return y[0];
    }
#endif
  };

  // A tree with words of slots behind it, kCount from kFirst on.
  template <class Before, template <int> class Word, int kFirst, class Indices>
  struct With;
  template <class... Before, template <int> class Word, int kFirst, int... kIndex>
  struct With<cutlass_fused::Tree<Before...>, Word, kFirst, std::integer_sequence<int, kIndex...>> {
    using type = cutlass_fused::Tree<Before..., Word<kFirst + kIndex>...>;
  };
  template <class Before, template <int> class Word, int kFirst, int kCount>
  using Add = typename With<Before, Word, kFirst, std::make_integer_sequence<int, kCount>>::type;

  template <int kSlot>
  using RowOf = Row<OpenVector<kSlot>>;
  template <int kSlot>
  using ColumnOf = Col<OpenVector<kSlot>>;
  template <int kSlot>
  using NumberOf = Number<OpenVector<kSlot>>;
  template <int kSlot>
  using TileOf = cutlass_fused::Tile<OpenTile<kSlot>>;

  using Bare = cutlass_fused::Tree<Compute<Fn>, Acc, Places>;
  using WithRows = Add<Bare, RowOf, open::kFirstRow, open::kRows>;
  using WithColumns = Add<WithRows, ColumnOf, open::kFirstColumn, open::kColumns>;
  using WithScalars = Add<WithColumns, NumberOf, open::kFirstScalar, open::kScalars>;
  using Tree = Add<WithScalars, TileOf, open::kFirstTile, open::kTiles>;

  struct Args {
    OpenVector<0> vectors[open::kFirstTile];  // by slot
    OpenTile<0> tiles[open::kTiles];
    OpenOutputs outputs;
    // The kernels of this program as CUDA's runtime launches them (a cudaKernel_t): the product's,
    // and that behind a product of split rows (KernelEntry and EpilogueEntry name them).
    void const* entry = nullptr;
    void const* repair_entry = nullptr;

   protected:
    template <int kSlot>
    static OpenVector<kSlot> as_slot(OpenVector<0> const& vector) {
      return {vector.data, vector.stride, vector.value};
    }
    template <int kSlot>
    static OpenTile<kSlot> as_slot(OpenTile<0> const& tile) {
      return {tile.data, tile.row_stride, tile.column_stride};
    }
    // With what stands in front of them.
    template <int... kVector>
    auto collect_vectors(std::integer_sequence<int, kVector...>) const {
      return std::make_tuple(Empty{}, outputs, as_slot<kVector>(vectors[kVector])...);
    }
    auto second_tile() const { return as_slot<open::kFirstTile + 1>(tiles[1]); }

   public:
    auto operands() const {
      return std::tuple_cat(collect_vectors(std::make_integer_sequence<int, open::kFirstTile>{}),
                            std::make_tuple(as_slot<open::kFirstTile>(tiles[0]), second_tile()));
    }
    static_assert(open::kTiles == 2);
  };
};

template <>
struct OpenCall<Open> {
  static constexpr bool kIsOpen = true;
  static void const* entry(ProductLaunch const& call) {
    return UnpackArgs<Open>::unpack(call).entry;
  }
  static Source source(ProductLaunch const&) { return {}; }
};

}  // namespace cutlass_fused
