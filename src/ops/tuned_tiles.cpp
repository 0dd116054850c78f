// tune_tile, record_products: what autotune is made of.
#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "cutlass_fused/plan/describe.hpp"
#include "cutlass_fused/plan/tile_names.hpp"
#include "launch/cublas/multiply.hpp"
#include "launch/recorded_products.hpp"
#include "op_namespace.hpp"

namespace cutlass_fused {
namespace {

struct Recorded {
  std::mutex mutex;
  std::vector<RecordedProduct> products;

  bool contains(ProductKey const& key) const {
    return std::any_of(products.begin(), products.end(),
                       [&](RecordedProduct const& product) { return product.key == key; });
  }
};

// Never destroyed: threads may still call while the process ends.
Recorded& recorded() {
  static auto* const state = new Recorded;
  return *state;
}

std::string quote(std::string const& text) { return "\"" + text + "\""; }

std::string type_json(DataType type) { return quote(dtype_string(to_scalar_type(type))); }

std::string to_json(RecordedProduct const& product) {
  ProductKey const& key = product.key;
  std::string tiles;
  for (std::string const& tile : product.tiles) tiles += (tiles.empty() ? "" : ", ") + quote(tile);
  return "{\"device\": " + std::to_string(key.device) + ", \"key\": " + quote(key.name()) +
         ", \"m\": " + std::to_string(key.m) + ", \"n\": " + std::to_string(key.n) +
         ", \"k\": " + std::to_string(key.k) + ", \"dtype\": " + type_json(product.type) +
         ", \"precision\": " + quote(precision_string(product.precision)) +
         ", \"out_dtype\": " + type_json(key.y_type) + ", \"choice\": " + quote(product.choice) +
         ", \"tiles\": [" + tiles + "]}";
}

// Every later product of this key, on this GPU, uses the tile; "" returns to the estimates.
void tune_tile(int64_t device, std::string key, std::string tile) {
  ProductKey parsed;
  STD_TORCH_CHECK(device >= 0 && device <= std::numeric_limits<int32_t>::max() &&
                      parse_key(key, device, parsed),
                  "tune_tile: device must be the index of a GPU and key of the form ",
                  "'bf16 M=1024 N=8192 K=8192 y=bfloat16', got ", device, " and '", key, "'");
  TileOverride const* const named = tile.empty() ? nullptr : find_named_tile(tile);
  STD_TORCH_CHECK(tile.empty() || named != nullptr,
                  "tune_tile: tile must be one of the tiles in build_info(), or 'cublas', got '",
                  tile, "'");
  tuned_tiles().set(parsed, named);
}

// From now on products are recorded, or no longer; what was recorded until now is returned, as a
// list in JSON.
std::string record_products(bool enabled) {
  RecordedProducts::enable(enabled);
  std::string text;
  for (RecordedProduct const& product : RecordedProducts::take()) {
    text += (text.empty() ? "" : ", ") + to_json(product);
  }
  return "[" + text + "]";
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("tune_tile", TORCH_BOX(&tune_tile));
  m.impl("record_products", TORCH_BOX(&record_products));
}

}  // namespace

void record_product(Product const& product, Plan const& plan) {
  // Products that find statistics or normalize have one tile, which nobody chooses; but of split
  // rows the product alone may come to stand behind.
  bool const alone = plan.norm == NormBy::kNone || plan.norm == NormBy::kColumns ||
                     plan.norm == NormBy::kOnChip || plan.product.arch == ArchId::kSm80;
  if ((!alone && !plan.splits) || plan.epilogue == names::kLogits) return;
  // Tiles are timed with operands along K. Others of 16 bits are cuBLAS's, or were copied before.
  if (!splits_rows(product.problem.math) && lies_along_mn(product.problem)) return;
  Device const& device = product.device;
  Problem problem = with_copies(product.problem, plan.copies);
  if (splits_rows(problem.math)) problem.x = problem.weight = {problem.multiplied_k()};
  ProductKey const key = make_key(problem, device);
  if (tuned_tiles().find(key) != nullptr || RecordedProducts::contains(key)) return;
  bool const copied = plan.copies.operands();
  Overrides overrides = find_overrides(problem, device);
  overrides.struck = strike_missing();
  ProductPlan const chosen = choose_product(problem, device, overrides, copied);
  std::vector<std::string> tiles = list_candidates(chosen, problem, device, overrides, copied);
  if (tiles.empty()) return;
  bool const is_cublas = plan.product.by == ProductBy::kCublas;
  std::string choice = is_cublas ? kCublasName : name_tile(chosen, problem.math);
  bool const has_weight = product.problem.weight_split != WeightSplit::kAlone;
  if (splits_rows(problem.math) && has_weight && overrides.forced == nullptr) {
    if (has_cublas() && problem.y_type == DataType::kFloat32) tiles.push_back(kCublasName);
    // As they are timed: along K, and without an epilogue.
    Problem timed = product.problem;
    timed.x = timed.weight = {timed.k};
    for (std::string& name : list_tf32x3(timed, device)) tiles.push_back(std::move(name));
    bool const is_timed = plan.product.by == ProductBy::kTf32x3
                              ? can_serve(TilesTf32x3::kShapes[plan.product.tile],
                                          plan.product.raster.count, timed, device)
                              : is_cublas;
    if (is_timed) choice = describe_kernel(plan.product, problem.math);
  }
  RecordedProducts::add(
      {key, spec_of(problem.math).type, product.precision, std::move(choice), std::move(tiles)});
}

bool RecordedProducts::contains(ProductKey const& key) {
  std::lock_guard<std::mutex> const lock(recorded().mutex);
  return recorded().contains(key);
}

void RecordedProducts::add(RecordedProduct product) {
  std::lock_guard<std::mutex> const lock(recorded().mutex);
  if (!recorded().contains(product.key)) recorded().products.push_back(std::move(product));
}

std::vector<RecordedProduct> RecordedProducts::take() {
  std::lock_guard<std::mutex> const lock(recorded().mutex);
  return std::exchange(recorded().products, {});
}

}  // namespace cutlass_fused
