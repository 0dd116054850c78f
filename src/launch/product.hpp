// A product as an op asks for it, and its kernel as a plan has it.
#pragma once

#include <optional>

#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/gemm/registry.hpp"
#include "cutlass_fused/plan/choose_product.hpp"
#include "cutlass_fused/plan/make_plan.hpp"
#include "checks/checks.hpp"
#include "checks/device.hpp"
#include "launch/split_operand.hpp"

namespace cutlass_fused {

// What stands behind a product: an epilogue and its Args.
struct EpilogueCall {
  EpilogueId id;
  void const* args;
  bool is_bare = false;  // it changes nothing: y = x @ weight.T
  bool reads_y = false;  // an operand is y: each output is to be written once, by who read it
};
template <class Epilogue>
EpilogueCall call_epilogue(typename Epilogue::Args const& args) {
  return {EpilogueId{Epilogue::kName}, &args};
}

// A product alone, by the epilogue that a bias has.
struct BareCall {
  ScaleLeakyReLU::Args const args = bias_alone(Vector::constant(0.0f));
  EpilogueCall const call{EpilogueId{ScaleLeakyReLU::kName}, &args, /*is_bare=*/true};

  BareCall() = default;
  BareCall(BareCall const&) = delete;
};

// Checked arguments, on the current device.
struct Product {
  char const* op;
  Precision precision;
  std::optional<Tensor> weight_split;
  GemmArgs gemm;  // of the matrices as they are given, and of y
  Problem problem;
  Device const& device;
  Tensor like;  // on the device
};

// Of what split_weight makes of this weight (choose_product.hpp).
SplitLayout layout_of_split(MathId math, Matrices const& matrices, Device const& device);

// Throws where the product is too large for the kernels, its operands do not lie on multiples of
// their elements' size, or weight_split cannot be of this weight.
void check_operands(char const* op, Matrices const& matrices, Precision precision);

// What is multiplied, into y: contiguous and not empty. Rows that no kernel reads are copied; but
// matrices that lie along M or N are taken `as_they_lie`, for a plan to say what reads them.
Product make_product(char const* op, Matrices& matrices, Precision precision, Tensor const& y,
                     DataType y_type, Device const& device, bool as_they_lie = false);

// The operands of a product of split rows, made on first use: a second plan finds those of the
// first.
struct SplitOperands {
  std::optional<SplitOperand> x, weight;
  bool along_n = false;  // the weight's, whose scales the parts of x have then

  SplitMatrix x_matrix() const { return x->matrix(); }
  SplitMatrix weight_matrix() const {
    SplitMatrix matrix = weight->matrix();
    if (along_n) matrix.scales = nullptr;
    return matrix;
  }
};

// Which kernels serve it. The same arguments give the same plan, which is kept.
Plan const& find_plan(Problem const& problem, Tail const& tail, Device const& device,
                      Struck struck);
inline Plan const& find_plan(Product const& product, Tail const& tail, Struck struck) {
  return find_plan(product.problem, tail, product.device, struck);
}

// What the kernels of products that find statistics write beside z.
struct StatisticsPointers {
  PartPointers parts = {};
  unsigned* strips = nullptr;
};

// Launches the plan's splits, copies and product, with the Args of its epilogue. Returns the part
// that the launch found to be impossible, if one was: then nothing has been written.
std::optional<Part> launch_product(Product const& product, Plan const& plan,
                                   EpilogueCall const& epilogue, SplitOperands& split,
                                   StatisticsPointers const& statistics = {});

// Behind a product of split rows: repair_rows.hpp.
void launch_repair(Product const& product, EpilogueCall const& epilogue,
                   SplitOperands const& split);

// y = epilogue(x @ weight.T), contiguous and not empty, of checked operands on the current device.
void run_linear_into(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                     Precision precision, Tensor const& y, DataType y_type, Tail::Kind kind,
                     Device const& device);

// The same as a new tensor; x of 16 bits may stand beside a weight of fp32.
Tensor run_linear(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                  Precision precision, DataType y_type, Tail::Kind kind = Tail::kEpilogue);

}  // namespace cutlass_fused
