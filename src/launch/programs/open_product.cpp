#include "launch/programs/open_product.hpp"

#include "cutlass_fused/common/memo.hpp"
#include "cutlass_fused/epilogue/open/open.hpp"
#include "cutlass_fused/gemm/kernel_key.hpp"
#include "cutlass_fused/gemm/tf32x3/run.hpp"
#include "cutlass_fused/plan/choose_product.hpp"
#include "cutlass_fused/plan/plan_key.hpp"
#include "cutlass_fused/program/propagates_nan.hpp"
#include "launch/programs/open_entry.hpp"

namespace cutlass_fused {
namespace {

using program::Kind;

enum class Outcome { kDone, kNoKernel, kPending, kTransposes };

// The kernels of a plan; null where the plan, or this build, has none.
struct Kernels {
  OpenKernel const* product = nullptr;
  OpenKernel const* repair = nullptr;  // of a plan that repairs
};

Kernels find_kernels(Product const& product, Plan const& plan) {
  Kernels found;
  if (plan.applies_behind) return found;
  if (plan.product.by == ProductBy::kTf32x3) {
    found.product = find_open_tf32x3(plan.product.tile, product.precision == Precision::kTf32);
    return found;
  }
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
    program::Element const& element = readable.operands[i].element;
    int64_t const stride = element.kind == Kind::kRow ? 1 : stride_of(element, tensor);
    int const slot = slots.of_operands[i];
    if (element.kind == Kind::kTile) {
      args.tiles[slot - open::kFirstTile] = {tensor.const_data_ptr(), stride, 1};
    } else {
      args.vectors[slot] = {tensor.const_data_ptr(), stride};
    }
  }
  for (size_t i = 1; i < call.outputs.size(); ++i) {
    args.outputs.outputs[i - 1] = {call.outputs[i].mutable_data_ptr(), gemm.n};
  }
  args.outputs.rows = static_cast<int>(gemm.m);
  args.outputs.columns = static_cast<int>(gemm.n);
  return args;
}

// A plan's kernels with a program in them, ready to be launched where they are linked.
struct Filled {
  bool has_kernel = false;  // whether there are any to link
  bool repairs = false;
  OpenEntry found;  // of both: the worse state
  Open::Args args;
};

Filled fill(ProgramCall const& call, Product const& product, Plan const& plan,
            Readable const& readable, LinkWhen when) {
  Filled filled;
  auto const [kernel, repair] = find_kernels(product, plan);
  if (kernel == nullptr) return filled;
  filled.repairs = repair != nullptr;
  if (filled.repairs && !program::propagates_nan(call.program)) return filled;
  auto const slots = program::choose_slots(readable.operands, call.types, kernel->reads_source);
  if (!slots) return filled;
  filled.has_kernel = true;
  auto const find_entry = [&](OpenKernel const& open) {
    return find_open_entry(call.text, call.program, *slots, open, product.device, when);
  };
  filled.args = make_args(call, readable, *slots, product.gemm);
  filled.found = find_entry(*kernel);
  filled.args.entry = filled.found.kernel;
  // Of two that are to be linked on another thread, both are begun.
  bool const may_run = filled.found.state == OpenEntry::kLinked ||  //
                       filled.found.state == OpenEntry::kPending;
  if (!filled.repairs || !may_run) return filled;
  OpenEntry const of_repair = find_entry(*repair);
  filled.args.repair_entry = of_repair.kernel;
  if (of_repair.state != OpenEntry::kLinked) filled.found = of_repair;
  return filled;
}

bool is_linked(Filled const& filled) {
  return filled.has_kernel && filled.found.state == OpenEntry::kLinked;
}

// The plan with other tiles. A tile that was forced is to run itself.
std::vector<Plan> const& list_others(Product const& product, Tail const& tail, Plan const& plan,
                                     Struck struck) {
  static std::vector<Plan> const none;
  if (forced_tile.load() != nullptr) return none;
  static thread_local Memo<std::vector<Plan>, PlanKey> memo;
  PlanKey key = make_plan_key(product.problem, tail, product.device, {nullptr, nullptr, struck});
  // What the list depends on that a tuned tile may have changed.
  key.back() |=
      static_cast<int64_t>(plan.product.arch) << 32 | static_cast<int64_t>(plan.copies.x) << 40 |
      static_cast<int64_t>(plan.copies.weight) << 41 | static_cast<int64_t>(plan.copies.y) << 42 |
      static_cast<int64_t>(plan.product.by == ProductBy::kTf32x3) << 43;
  return *memo.find(key, [&](std::vector<Plan>& plans) {
    plans = list_other_tiles(plan, product.problem, product.device);
    return true;
  });
}

// The kernels of the plan, else those of another tile, which is then the plan's, that are linked.
Filled fill_any(ProgramCall const& call, Product const& product, Tail const& tail, Plan& plan,
                Readable const& readable, Struck struck) {
  Filled const first = fill(call, product, plan, readable, call.when);
  if (!first.has_kernel || is_linked(first)) return first;
  for (Plan const& other : list_others(product, tail, plan, struck)) {
    Filled const filled = fill(call, product, other, readable, LinkWhen::kNever);
    if (!is_linked(filled)) continue;
    if (first.found.state == OpenEntry::kFailed) {
      warn_of_link(call.op, "runs by another tile than the fastest", first.found.error);
    }
    plan = other;
    return filled;
  }
  return first;
}

// What becomes of a call whose kernels are not linked.
Outcome give_up(ProgramCall const& call, Product const& product, Filled const& filled) {
  if (!filled.has_kernel) return Outcome::kNoKernel;
  switch (filled.found.state) {
    case OpenEntry::kPending:
      return Outcome::kPending;
    case OpenEntry::kCaptured:
      check_capture(call.op, product.device, "with as many rows and columns", [] { return false; });
      break;
    case OpenEntry::kFailed:
      warn_of_link(call.op, "runs behind its product, not within", filled.found.error);
      break;
    case OpenEntry::kMissing:
    case OpenEntry::kLinked:
      break;
  }
  return Outcome::kNoKernel;
}

// As run_product of src/launch/product.cpp, but by open kernels alone.
Outcome run(ProgramCall const& call, Product const& product) {
  Tail const tail{Tail::kEpilogue, names::kOpen};
  Readable const readable = read_operands(call, product.gemm);
  SplitOperands split;
  for (Struck struck;;) {
    Plan plan = find_plan(product, tail, struck);
    if (plan.transposes) return Outcome::kTransposes;
    Filled const filled = fill_any(call, product, tail, plan, readable, struck);
    if (!is_linked(filled)) return give_up(call, product, filled);
    EpilogueCall const epilogue{names::kOpen, &filled.args};
    std::optional<Part> const refused = launch_product(product, plan, epilogue, split);
    if (!refused) {
      if (filled.repairs) launch_repair(product, epilogue, split);
      return Outcome::kDone;
    }
    struck = struck.with(*refused);
  }
}

}  // namespace

OpenOutcome run_open_product(ProgramCall const& call, Matrices matrices, Precision precision,
                             Device const& device) {
  DataType const y_type = to_data_type(call.types[0]);
  // Kernels write the type of the matrices, or fp32; of mixed ones there is none.
  if (matrices.is_mixed || (y_type != matrices.type && y_type != DataType::kFloat32)) {
    return OpenOutcome::kNoKernel;
  }
  check_operands(call.op, matrices, precision);
  for (bool as_they_lie : {true, false}) {
    Product const product =
        make_product(call.op, matrices, precision, call.outputs[0], y_type, device, as_they_lie);
    Outcome const outcome = run(call, product);
    if (outcome == Outcome::kTransposes) continue;
    return outcome == Outcome::kDone      ? OpenOutcome::kDone
           : outcome == Outcome::kPending ? OpenOutcome::kPending
                                          : OpenOutcome::kNoKernel;
  }
  return OpenOutcome::kNoKernel;
}

}  // namespace cutlass_fused
