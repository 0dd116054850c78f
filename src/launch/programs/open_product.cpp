#include "launch/programs/open_product.hpp"

#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/gemm/kernel_key.hpp"
#include "cutlass_fused/program/propagates_nan.hpp"
#include "launch/programs/open_entry.hpp"

namespace cutlass_fused {
namespace {

using program::Kind;

enum class Outcome { kDone, kNoKernel, kTransposes };

// The kernels of a plan; null where the plan, or this build, has none.
struct Kernels {
  OpenKernel const* product = nullptr;
  OpenKernel const* repair = nullptr;  // of a plan that repairs
};

Kernels find_kernels(Product const& product, Plan const& plan) {
  Kernels found;
  if (!has_kernel(plan.product)) return found;
  KernelEntry const* const kernel = find_kernel(make_kernel_key(plan, product.problem));
  if (kernel == nullptr || kernel->open == nullptr) return found;
  if (plan.repair != Repair::kNone) {
    EpilogueEntry const* const epilogue = find_epilogue(names::kOpen);
    bool const is_split_alone = product.gemm.weight == nullptr;
    found.repair = epilogue == nullptr ? nullptr : epilogue->repairs[is_split_alone];
    if (found.repair == nullptr) return found;
  }
  found.product = kernel->open;
  return found;
}

// What kernels read of the operands, which stay as long as this does.
struct Readable {
  std::vector<Tensor> tensors;
  std::vector<program::OpenOperand> operands;
};

// Rows that overlap are no matrix to TMA.
bool lies_as_y(program::Element const& element, Tensor const& tensor, GemmArgs const& gemm) {
  DataType const type = to_data_type(element.type);
  return element.kind == Kind::kTile && type == gemm.y_type && tensor.stride(0) >= gemm.n &&
         alignment_of(tensor.const_data_ptr()) == 16 && tensor.stride(0) * size_of(type) % 16 == 0;
}

Readable read_operands(ProgramCall const& call, GemmArgs const& gemm) {
  Readable readable;
  for (auto const& [element, tensor] : call.operands) {
    readable.tensors.push_back(make_readable(element, tensor, gemm.m, gemm.n));
    readable.operands.push_back({element, lies_as_y(element, readable.tensors.back(), gemm)});
  }
  return readable;
}

Open::Args make_args(ProgramCall const& call, Readable const& readable, program::Slots const& slots,
                     GemmArgs const& gemm) {
  Open::Args args;
  for (size_t i = 0; i < readable.tensors.size(); ++i) {
    Tensor const& tensor = readable.tensors[i];
    Kind const kind = readable.operands[i].element.kind;
    int const slot = slots.of_operands[i];
    if (kind == Kind::kTile) {
      args.tiles[slot - open::kFirstTile] = {tensor.const_data_ptr(), tensor.stride(0), 1};
    } else {
      args.vectors[slot] = {tensor.const_data_ptr(), kind == Kind::kScalar ? 0 : 1};
    }
  }
  for (size_t i = 1; i < call.outputs.size(); ++i) {
    args.outputs.outputs[i - 1] = {call.outputs[i].mutable_data_ptr(), gemm.n};
  }
  args.outputs.rows = static_cast<int>(gemm.m);
  args.outputs.columns = static_cast<int>(gemm.n);
  return args;
}

// As run_product of src/launch/product.cpp, but by open kernels alone.
Outcome run(ProgramCall const& call, Product const& product) {
  Tail const tail{Tail::kEpilogue, names::kOpen};
  Readable const readable = read_operands(call, product.gemm);
  SplitOperands split;
  for (Struck struck;;) {
    Plan const plan = find_plan(product, tail, struck);
    if (plan.transposes) return Outcome::kTransposes;
    auto const [kernel, repair] = find_kernels(product, plan);
    if (kernel == nullptr) return Outcome::kNoKernel;
    if (repair != nullptr && !program::propagates_nan(call.program)) return Outcome::kNoKernel;
    auto const slots = program::choose_slots(readable.operands, call.types, kernel->reads_source);
    if (!slots) return Outcome::kNoKernel;
    auto const find_entry = [&](OpenKernel const& open) {
      return find_open_entry(call.op, call.text, call.program, *slots, open, product.device);
    };
    Open::Args args = make_args(call, readable, *slots, product.gemm);
    args.entry = find_entry(*kernel);
    if (args.entry == nullptr) return Outcome::kNoKernel;
    if (repair != nullptr) {
      args.repair_entry = find_entry(*repair);
      if (args.repair_entry == nullptr) return Outcome::kNoKernel;
    }
    EpilogueCall const epilogue{names::kOpen, &args};
    std::optional<Part> const refused = launch_product(product, plan, epilogue, split);
    if (!refused) {
      if (repair != nullptr) launch_repair(product, epilogue, split);
      return Outcome::kDone;
    }
    struck = struck.with(*refused);
  }
}

}  // namespace

bool run_open_product(ProgramCall const& call, Matrices matrices, Precision precision,
                      Device const& device) {
  DataType const y_type = to_data_type(call.types[0]);
  // Kernels write the type of the matrices, or fp32; of mixed ones there is none.
  if (matrices.is_mixed || (y_type != matrices.type && y_type != DataType::kFloat32)) return false;
  check_operands(call.op, matrices, precision);
  for (bool as_they_lie : {true, false}) {
    Product const product =
        make_product(call.op, matrices, precision, call.outputs[0], y_type, device, as_they_lie);
    Outcome const outcome = run(call, product);
    if (outcome != Outcome::kTransposes) return outcome == Outcome::kDone;
  }
  return false;
}

}  // namespace cutlass_fused
