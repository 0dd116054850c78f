#include "launch/product.hpp"

#include "cutlass_fused/common/memo.hpp"
#include "cutlass_fused/gemm/kernel_key.hpp"
#include "cutlass_fused/plan/plan_key.hpp"
#include "cutlass_fused/plan/tuned_tiles.hpp"
#include "launch/aligned_rows.hpp"
#include "launch/allocate.hpp"
#include "launch/as_they_lie/mixed_product.hpp"
#include "launch/as_they_lie/tf32x3.hpp"
#include "launch/cublas/multiply.hpp"
#include "launch/log_plan.hpp"
#include "launch/recorded_products.hpp"
#include "checks/status.hpp"

namespace cutlass_fused {
namespace {

// Memory for the product in fp32 where y is of 16 bits. None is left: nothing.
std::optional<Tensor> allocate_scratch(Product const& product) {
  GemmArgs const& gemm = product.gemm;
  try {
    return allocate(product.like, {gemm.m, gemm.n}, ScalarType::Float);
  } catch (std::exception const&) {
    return std::nullopt;
  }
}

bool multiply_into(Product const& product, void* y, DataType y_type) {
  GemmArgs const& gemm = product.gemm;
  MathSpec const& math = spec_of(product.problem.math);
  return multiply_by_cublas({1,
                             gemm.m,
                             gemm.n,
                             gemm.k,
                             {gemm.x, gemm.ldx, 0, gemm.x_major},
                             {gemm.weight, gemm.ldw, 0, gemm.weight_major},
                             y,
                             gemm.ldy,
                             0,
                             math.type,
                             y_type,
                             math.precision},
                            product.device);
}

// Into y itself where nothing stands behind the product, or where y is of fp32: the epilogue then
// works in its place. Else the epilogue reads a scratch in fp32, so that y is rounded once.
std::optional<Part> launch_by_cublas(Product const& product, Plan const& plan,
                                     EpilogueCall const& epilogue) {
  GemmArgs const& gemm = product.gemm;
  bool const in_place = epilogue.is_bare || gemm.y_type == DataType::kFloat32;
  // The memory is given back while kernels run; the allocator reuses it in stream order.
  std::optional<Tensor> const scratch = in_place ? std::nullopt : allocate_scratch(product);
  void* const sums = in_place ? gemm.y : scratch ? scratch->mutable_data_ptr() : nullptr;
  if (sums == nullptr ||
      !multiply_into(product, sums, in_place ? gemm.y_type : DataType::kFloat32)) {
    TileOverride const* const forced = forced_tile.load();
    STD_TORCH_CHECK(forced == nullptr || !forced->cublas, product.op,
                    ": PyTorch or cuBLAS refuses the product by cuBLAS");
    return Part::kCublas;
  }
  log_plan(product, plan);
  if (epilogue.is_bare) return {};
  check_status(product.op,
               find_epilogue(epilogue.id)
                   ->apply(gemm, /*batch=*/1, static_cast<float const*>(sums), epilogue.args,
                           product.device, current_stream(product.device)));
  return {};
}

// The parts of a weight that lies along N are given as a plan has them, or of no use to it.
bool takes_given(Product const& product, bool along_n) {
  if (!product.weight_split.has_value()) return false;
  MathId const math = product.problem.math;
  GemmArgs const& gemm = product.gemm;
  return along_n == has_parts_along_n(math, gemm.weight_major, gemm.n, product.device);
}

void make_split(Product const& product, bool along_n, SplitOperands& split) {
  if (split.x && split.along_n == along_n) return;
  GemmArgs const& gemm = product.gemm;
  Device const& device = product.device;
  cudaStream_t const stream = current_stream(device);
  Engine const engine = product.problem.engine();
  split.along_n = along_n;
  split.weight.emplace(along_n ? gemm.k : gemm.n, along_n ? gemm.n : gemm.k, engine);
  split.x.emplace(gemm.m, gemm.k, engine);
  split.x->reserve(gemm.x_major, product.like);
  bool const is_given = takes_given(product, along_n);
  bool const in_rows = along_n || gemm.weight_major == Major::kK;
  if (is_given) {
    split.weight->take(*product.weight_split);
  } else {
    split.weight->reserve(in_rows ? Major::kK : Major::kMn, product.like);
    check_status(product.op, split.weight->make(gemm.weight, gemm.ldw, nullptr, split.x->to_clear(),
                                                false, device, stream));
  }
  RowScale const* const folded = along_n ? split.weight->matrix().scales : nullptr;
  check_status(product.op,
               split.x->make(gemm.x, gemm.ldx, folded, {}, !is_given && in_rows, device, stream));
}

// Multiplies by a kernel of the registry.
std::optional<Part> launch_kernel(Product const& product, Plan const& plan,
                                  EpilogueCall const& epilogue, SplitOperands& split,
                                  StatisticsPointers const& statistics) {
  char const* const op = product.op;
  Device const& device = product.device;
  Problem const& problem = product.problem;
  KernelEntry const* const kernel = find_kernel(make_kernel_key(plan, problem));
  STD_TORCH_CHECK(kernel != nullptr, op, ": this build has no kernel ", plan.epilogue.name, " of ",
                  describe(plan, problem.math));
  AlignedRows rows(product.gemm, plan.copies, problem);
  if (!rows.reserve(product.like)) return Part::kCopies;
  cudaStream_t const stream = current_stream(device);
  if (plan.splits) make_split(product, plan.along_n, split);
  check_status(op, rows.make(device, stream));

  ProductLaunch call{rows.gemm(), plan.product.raster, epilogue.args};
  if (plan.splits) {
    SplitMatrix const x = split.x_matrix(), weight = split.weight_matrix();
    call.gemm.x = x.rows;
    call.gemm.weight = weight.rows;
    call.gemm.ldx = x.layout.pitch();
    call.gemm.ldw = weight.layout.pitch();
    call.gemm.x_major = Major::kK;
    call.gemm.weight_major = plan.along_n ? Major::kMn : Major::kK;
    call.x_scales = {x.scales};
    call.weight_scales = {weight.scales};
  }
  call.parts = statistics.parts;
  call.strips = statistics.strips;
  // The workspace comes from PyTorch's allocator on each call, so that streams and graphs never
  // share one; it may be freed while the kernel runs, as the allocator reuses it in stream order.
  std::optional<Tensor> workspace;
  size_t const bytes = kernel->workspace(call.gemm, device);
  if (bytes > 0) workspace = allocate(product.like, {int64_t(bytes)}, ScalarType::Byte);
  call.launch = {device, workspace ? workspace->mutable_data_ptr() : nullptr, stream};
  log_plan(product, plan);
  Status const status = kernel->launch(call);
  // No cluster fits where the GPU is shared out, or the driver makes no descriptor.
  bool const refused = status == Status::kNoKernel || status == Status::kNoDescriptor;
  if (refused && plan.product.arch != ArchId::kSm80) return find_refused(plan);
  check_status(op, status);
  check_status(op, rows.copy_back(device, stream));
  return {};
}

void multiply_simt(Product const& product, EpilogueCall const& epilogue) {
  cudaStream_t const stream = current_stream(product.device);
  bool const is_fp32 = spec_of(product.problem.math).type == DataType::kFloat32;
  check_status(product.op,
               epilogue.is_bare && is_fp32 && reads_any_major(product.gemm.k)
                   ? run_bare_short_k(product.gemm, product.device, stream)
                   : find_epilogue(epilogue.id)
                         ->multiply_simt(product.gemm, epilogue.args, product.device, stream));
}

}  // namespace

SplitLayout layout_of_split(MathId math, Matrices const& matrices, Device const& device) {
  bool const has_low = spec_of(math).engine == Engine::kFp16x3;
  Major const major = find_major(matrices.weight, matrices.ldw);
  if (has_parts_along_n(math, major, matrices.n, device)) return {matrices.k, matrices.n, has_low};
  return {matrices.n, matrices.k, has_low};
}

void check_operands(char const* op, Matrices const& matrices, Precision precision) {
  STD_TORCH_CHECK(fits_kernels(matrices.m, matrices.n, matrices.k), op,
                  ": M, N, K and the number of output tiles must each be below 2^31, got M=",
                  matrices.m, " N=", matrices.n, " K=", matrices.k);
  auto const address = [](Tensor const& t) {
    return reinterpret_cast<uintptr_t>(t.const_data_ptr());
  };
  DataType const type = matrices.multiplied_type();
  STD_TORCH_CHECK(address(matrices.x) % size_of(matrices.type) == 0 &&
                      address(matrices.weight) % size_of(type) == 0,
                  op, ": x and weight must be aligned to their elements");
  MathId const math = choose_math(type, precision, matrices.k);
  if (!matrices.weight_split.has_value() || !splits_rows(math)) return;
  Tensor const& split = *matrices.weight_split;
  Device const& device = supported_device(op, matrices.x.get_device_index());
  int64_t const bytes = layout_of_split(math, matrices, device).bytes();
  STD_TORCH_CHECK(
      split.numel() == bytes && address(split) % 16 == 0, op,
      ": weight_split must be what split_weight returns for this weight and precision, ", bytes,
      " bytes aligned to 16, got ", split.numel(), " bytes, ", address(split) % 16,
      " above a multiple of 16");
}

Product make_product(char const* op, Matrices& matrices, Precision precision, Tensor const& y,
                     DataType y_type, Device const& device, bool as_they_lie) {
  MathId const math = choose_math(matrices.type, precision, matrices.k);
  bool const splits = splits_rows(math), only_split = splits && stands_for_split(matrices);
  Majors majors{find_major(matrices.x, matrices.ldx), find_major(matrices.weight, matrices.ldw)};
  // The parts of a weight along N are none of its copy.
  bool const has_split =
      matrices.weight_split.has_value() &&
      (as_they_lie || !has_parts_along_n(math, majors.weight, matrices.n, device));
  if (!as_they_lie) majors = {};
  copy_scattered_rows(matrices, majors.x == Major::kK, majors.weight == Major::kK && !only_split);
  Tensor const &x = matrices.x, &weight = matrices.weight;
  GemmArgs const gemm{matrices.m,
                      matrices.n,
                      matrices.k,
                      x.const_data_ptr(),
                      majors.x == Major::kK ? matrices.ldx : x.stride(1),
                      only_split ? nullptr : weight.const_data_ptr(),
                      majors.weight == Major::kK ? matrices.ldw : weight.stride(1),
                      y.mutable_data_ptr(),
                      matrices.n,
                      y_type,
                      majors.x,
                      majors.weight};
  Problem problem = make_problem(math, gemm);
  if (has_split) {
    problem.weight_split = only_split ? WeightSplit::kAlone : WeightSplit::kKept;
  }
  return {op,     precision, has_split ? matrices.weight_split : std::nullopt, gemm, problem,
          device, y};
}

Plan const& find_plan(Problem const& problem, Tail const& tail, Device const& device,
                      Struck struck) {
  static thread_local Memo<Plan, PlanKey> memo;
  Overrides overrides = find_overrides(problem, device);
  overrides.struck = strike_missing(struck);
  return *memo.find(make_plan_key(problem, tail, device, overrides), [&](Plan& plan) {
    plan = make_plan(problem, tail, device, overrides);
    return true;
  });
}

std::optional<Part> launch_product(Product const& product, Plan const& plan,
                                   EpilogueCall const& epilogue, SplitOperands& split,
                                   StatisticsPointers const& statistics) {
  record_if_asked(product, plan);
  switch (plan.product.by) {
    case ProductBy::kUnknownTile:
      check_status(product.op, Status::kUnknownTile);
      break;
    case ProductBy::kNone:
      check_status(product.op, Status::kNoKernel);
      break;
    case ProductBy::kTf32x3:
      log_plan(product, plan);
      launch_tf32x3(product.op, make_float_product(product.gemm), product.precision, plan.product,
                    epilogue, product.device, product.like);
      return {};
    case ProductBy::kSimt:
      log_plan(product, plan);
      multiply_simt(product, epilogue);
      return {};
    case ProductBy::kCublas:
      return launch_by_cublas(product, plan, epilogue);
    case ProductBy::kTile:
    case ProductBy::kNarrow4:
    case ProductBy::kNarrow2:
      break;
  }
  return launch_kernel(product, plan, epilogue, split, statistics);
}

void launch_repair(Product const& product, EpilogueCall const& epilogue,
                   SplitOperands const& split) {
  check_status(product.op, find_epilogue(epilogue.id)
                               ->repair_rows(product.gemm, epilogue.args, split.x_matrix(),
                                             split.weight_matrix(), product.device,
                                             current_stream(product.device)));
}

namespace {

// Whether the plan writes to y before its epilogue has read all that it reads.
bool writes_early(Plan const& plan) {
  return plan.applies_behind || plan.repair != Repair::kNone ||
         plan.product.by == ProductBy::kCublas;
}

// The product alone, and its epilogue behind: y = epilogue(sums). An operand that is y must outlast
// the product, which then has memory of its own. Returns what was refused.
std::optional<Part> run_apart(Product const& product, Plan const& plan,
                              EpilogueCall const& epilogue, SplitOperands& split) {
  BareCall const bare;
  Product multiplied = product;
  std::optional<Tensor> memory;
  if (epilogue.reads_y) {
    memory = allocate(product.like, {product.gemm.m, product.gemm.n}, ScalarType::Float);
    multiplied.gemm.y = memory->mutable_data_ptr();
  }
  std::optional<Part> const refused = launch_product(multiplied, plan, bare.call, split);
  if (refused) return refused;
  if (plan.repair == Repair::kRows) launch_repair(multiplied, bare.call, split);
  auto const* const sums = static_cast<float const*>(multiplied.gemm.y);
  check_status(product.op, find_epilogue(epilogue.id)
                               ->apply(product.gemm, /*batch=*/1, sums, epilogue.args,
                                       product.device, current_stream(product.device)));
  return {};
}

// False: the plan is for operands that lie along K.
bool run_product(Product const& product, Tail const& tail, EpilogueCall const& epilogue) {
  SplitOperands split;
  for (Struck struck;;) {
    Plan plan = find_plan(product, tail, struck);
    if (plan.transposes) return false;
    if (epilogue.reads_y && writes_early(plan)) part_from_epilogue(plan);
    std::optional<Part> refused;
    if (plan.applies_behind) {
      refused = run_apart(product, plan, epilogue, split);
    } else {
      refused = launch_product(product, plan, epilogue, split);
      if (!refused && plan.repair == Repair::kRows) launch_repair(product, epilogue, split);
    }
    if (!refused) return true;
    struck = struck.with(*refused);
  }
}

}  // namespace

void run_linear_into(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                     Precision precision, Tensor const& y, DataType y_type, Tail::Kind kind,
                     Device const& device) {
  Tail const tail{kind, epilogue.id, epilogue.is_bare};
  for (bool as_they_lie : {true, false}) {
    Product const product = make_product(op, matrices, precision, y, y_type, device, as_they_lie);
    if (run_product(product, tail, epilogue)) break;
  }
}

Tensor run_linear(char const* op, Matrices matrices, EpilogueCall const& epilogue,
                  Precision precision, DataType y_type, Tail::Kind kind) {
  check_operands(op, matrices, precision);
  DeviceScope const scope(op, matrices.x);
  Tensor y = allocate(matrices.x, matrices.y_shape, to_scalar_type(y_type));
  if (matrices.m == 0 || matrices.n == 0) return y;
  auto const run = matrices.is_mixed ? run_mixed_linear_into : run_linear_into;
  run(op, std::move(matrices), epilogue, precision, y, y_type, kind, scope.device());
  return y;
}

}  // namespace cutlass_fused
