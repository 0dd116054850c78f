#include "launch/programs/link_ahead.hpp"

#include <map>

#include "cutlass_fused/gemm/kernel_key.hpp"
#include "cutlass_fused/gemm/tf32x3/run.hpp"
#include "cutlass_fused/plan/make_plan.hpp"
#include "cutlass_fused/program/rows/print.hpp"
#include "cutlass_fused/program/propagates_nan.hpp"
#include "launch/programs/pointwise.hpp"
#include "launch/programs/typical_gpus.hpp"
#include "link/compile.hpp"
#include "link/open/assemble.hpp"

namespace cutlass_fused {
namespace {

using program::Element;
using program::Kind;
using program::Type;

constexpr int64_t kLongK = 4096;  // of no size: what the most products are made of

using OpenByName = std::map<std::string, OpenKernel const*>;

void add(OpenByName& kernels, OpenKernel const* kernel) {
  if (kernel != nullptr) kernels[kernel->name] = kernel;
}

void add_repairs(OpenByName& kernels) {
  EpilogueEntry const* const epilogue = find_epilogue(names::kOpen);
  if (epilogue == nullptr) return;
  for (OpenKernel const* const repair : epilogue->repairs) add(kernels, repair);
}

// All tiles of tf32x3.
void add_tf32x3(OpenByName& kernels, Precision precision) {
  for (int tile = 0; tile < TilesTf32x3::kSize; ++tile) {
    add(kernels, find_open_tf32x3(tile, precision == Precision::kTf32));
  }
}

// All tiles of the newest generation that the GPU runs. `splits`: also those of split rows.
OpenByName list_all(MathId math, Precision precision, int compute_capability, bool splits) {
  OpenByName kernels;
  for (ArchRow const& row : kArchRows) {
    if (!archs_for(compute_capability).has(row.id) || !spec_of(row.id).has_open) continue;
    OpenByName of_arch;
    for (int tile = 0; tile < spec_of(row.id).count(math); ++tile) {
      KernelEntry const* const found = find_kernel({row.id, math, {}, tile, names::kOpen});
      if (found != nullptr) add(of_arch, found->open);
    }
    if (!of_arch.empty()) kernels = of_arch;
  }
  if (!splits_rows(math)) return kernels;
  if (!splits) kernels.clear();
  if (!kernels.empty()) add_repairs(kernels);
  if (runs_open_tf32x3(archs_for(compute_capability))) add_tf32x3(kernels, precision);
  return kernels;
}

// Those that serve a product on common GPUs, whether or not the parts of a weight are kept.
OpenByName list_of_sizes(ProductToLink const& product, MathId math, DataType y_type, bool splits) {
  OpenByName kernels;
  Problem problem{math,   product.m,   product.n,   product.k,
                  y_type, {product.k}, {product.k}, {product.n}};
  Tail const tail{Tail::kEpilogue, names::kOpen};
  for (Device const& gpu : list_typical_gpus(product.compute_capability)) {
    for (WeightSplit const split : {WeightSplit::kMissing, WeightSplit::kKept}) {
      problem.weight_split = split;
      Plan const plan = make_plan(problem, tail, gpu, {});
      if (plan.transposes || plan.applies_behind) continue;
      if (plan.product.by == ProductBy::kTf32x3) {
        add(kernels, find_open_tf32x3(plan.product.tile, product.precision == Precision::kTf32));
      }
      if (!has_kernel(plan.product) || (plan.splits && !splits)) continue;
      KernelEntry const* const found = find_kernel(make_kernel_key(plan, problem));
      if (found == nullptr) continue;
      add(kernels, found->open);
      if (plan.splits) add_repairs(kernels);
    }
  }
  return kernels;
}

Linked assemble(OpenKernel const& kernel, program::Program const& program,
                program::Slots const& slots, int compute_capability) {
  auto const made =
      link::assemble(link::find_open_kernels(), kernel.name, program, slots, compute_capability);
  Linked linked{kernel.name, !made->is_kept, made->error, made->cache_error};
  if (made->error.empty() && made->param_bytes != kernel.param_bytes) {
    linked.refusal = "open_kernels.bin is that of another build";
  }
  return linked;
}

}  // namespace

std::vector<Linked> link_within(ProductToLink const& product, program::Program const& program,
                                std::vector<Element> const& operands,
                                std::vector<Type> const& outputs) {
  DataType const y_type = to_data_type(outputs[0]);
  if (y_type != product.type && y_type != DataType::kFloat32) return {};
  if (program.is_of_rows()) return {};
  bool const has_sizes = product.m > 0 && product.n > 0 && product.k > 0;
  bool const is_known = has_sizes && !list_typical_gpus(product.compute_capability).empty();
  MathId const math = choose_math(product.type, product.precision, has_sizes ? product.k : kLongK);
  bool const splits = program::propagates_nan(program);
  OpenByName const kernels =
      is_known ? list_of_sizes(product, math, y_type, splits)
               : list_all(math, product.precision, product.compute_capability, splits);
  std::vector<program::OpenOperand> open;
  for (Element const& element : operands) {
    bool const is_like_y = element.kind == Kind::kTile && to_data_type(element.type) == y_type;
    open.push_back({element, is_like_y && product.n * size_of(y_type) % 16 == 0});
  }
  std::vector<Linked> linked;
  for (auto const& [name, kernel] : kernels) {
    auto const slots = program::choose_slots(open, outputs, kernel->reads_source);
    if (slots) linked.push_back(assemble(*kernel, program, *slots, product.compute_capability));
  }
  return linked;
}

namespace {

// The kernel of a program of rows, in matrices as PyTorch allocates them.
Linked link_rows(std::string const& arch, program::Program const& program,
                 std::vector<Element> const& inputs, std::vector<Type> const& outputs) {
  std::vector<program::Memory> memories;
  for (Element const& input : inputs) {
    bool const has_pieces = input.kind == Kind::kRow || input.kind == Kind::kTile;
    if (has_pieces) memories.push_back({input.type, 0, program.columns});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (program.widths[i] == 1) memories.push_back({outputs[i], 0, program.columns});
  }
  program::Rows const rows = make_rows(program, inputs, outputs, memories);
  Linked linked{"rows_" + std::to_string(program.columns), false, refuse_rows(program, rows), ""};
  if (!linked.refusal.empty()) return linked;
  auto const made = link::compile(print_rows(program, rows), arch);
  return {linked.name, !made->is_kept, made->error, made->cache_error};
}

}  // namespace

std::vector<Linked> link_pointwise(int compute_capability, int64_t m, int64_t n,
                                   program::Program const& program,
                                   std::vector<Element> const& inputs, Results const& results) {
  std::string const arch = "sm_" + std::to_string(compute_capability);
  if (program.is_of_rows()) return {link_rows(arch, program, inputs, results.types)};
  // As PyTorch allocates: on boundaries of any word, and without a gap between rows.
  program::Pointwise pointwise{inputs, results.types, 1, results.sums};
  int const sums = pointwise.count_sums();
  bool is_flat = sums == 0;
  std::vector<Type> types;
  for (size_t i = 0; i < results.types.size(); ++i) {
    if (!results.is_sum(i)) types.push_back(results.types[i]);
  }
  for (Element const& input : inputs) {
    if (input.kind == Kind::kRow || input.kind == Kind::kTile) types.push_back(input.type);
    is_flat = is_flat && (input.kind == Kind::kTile || input.kind == Kind::kScalar);
  }
  auto const choose_piece = [&](int64_t rows, int64_t columns) {
    std::vector<program::Memory> memories;
    for (Type const type : types) memories.push_back({type, 0, columns});
    return choose_walk(memories, is_flat, rows, columns, sums).piece;
  };
  std::map<int, Linked> linked;
  auto const link = [&](int piece) {
    pointwise.piece = piece;
    auto const made = link::compile(print_pointwise(program, pointwise), arch);
    linked[piece] = {"pointwise_" + std::to_string(piece), !made->is_kept, made->error,
                     made->cache_error};
  };
  if (m > 0 && n > 0) {
    link(choose_piece(m, n));
  } else {
    for (int columns = 1; columns <= program::kMostPiece; columns *= 2) {
      int const piece = choose_piece(1, columns);
      if (linked.count(piece) == 0) link(piece);
    }
  }
  std::vector<Linked> all;
  for (auto const& [piece, each] : linked) all.push_back(each);
  return all;
}

}  // namespace cutlass_fused
