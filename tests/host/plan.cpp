// Reads commands, a line each, with a call as names and values ("plan m=1024 n=8192 ..."), and
// prints the answer to each:
//   plan <call>    what the log says of the plan, its kernel in the registry, the part that a
//                  refused launch strikes out, and what is done to split rows, with tabs between
//   batch <call>   what multiplies a batch; "none": each product of it as a plan of its own says
//   others <call>  what the log says of the plan with each tile that could serve instead, and its
//   own key <call>     the words under which the plan is kept tiles <call>   the names of the tiles
//   of its Math row shares <call>  slices and parts of K, of the tile of tf32x3 that is forced
//   mixed <call>   of x of 16 bits beside an fp32 weight: the kernel that reads both as they lie,
//                  or "-", its estimated nanoseconds, and those where x is widened
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "cutlass_fused/plan/describe.hpp"
#include "cutlass_fused/gemm/kernel_key.hpp"
#include "cutlass_fused/gemm/mixed/choose.hpp"
#include "cutlass_fused/plan/choose_product.hpp"
#include "cutlass_fused/plan/plan_key.hpp"
#include "cutlass_fused/plan/tile_names.hpp"

using namespace cutlass_fused;

// The names of Part.
std::map<std::string, Part> const kParts{
    {"copies", Part::kCopies},         {"cublas", Part::kCublas},
    {"product", Part::kProduct},       {"logits", Part::kLogits},
    {"statistics", Part::kStatistics}, {"strips", Part::kStrips},
    {"on_chip", Part::kOnChip},        {"group", Part::kGroup}};

class Call {
 public:
  explicit Call(std::istream& in) {
    for (std::string word; in >> word;) {
      size_t const equals = word.find('=');
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }

  int64_t number(std::string const& name, int64_t otherwise) const {
    auto const found = values_.find(name);
    return found == values_.end() ? otherwise : std::stoll(found->second);
  }
  std::string word(std::string const& name) const {
    auto const found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }

  DataType type(std::string const& name, DataType otherwise) const {
    for (DataType type : kDataTypes) {
      if (word(name) == name_of(type)) return type;
    }
    return otherwise;
  }

  Problem problem() const {
    DataType const type = this->type("dtype", DataType::kFloat32);
    int64_t const n = number("n", 1), k = number("k", 1);
    auto const rows = [&](std::string const& name, int64_t columns) {
      return Rows{number("ld" + name, columns), int(number("align_" + name, 16)),
                  number("major_" + name, 0) != 0 ? Major::kMn : Major::kK};
    };
    return {choose_math(type, number("coarse", 0) != 0 ? Precision::kTf32 : Precision::kIeee, k),
            number("m", 1),
            n,
            k,
            this->type("y_dtype", type),
            rows("x", k),
            rows("w", k),
            rows("y", n),
            number("batch", 1),
            static_cast<WeightSplit>(number("weight_split", 0))};
  }

  Tail tail() const {
    std::string const kind = word("tail");
    Tail tail{kind == "batch_norm" ? Tail::kBatchNorm
              : kind == "logits"   ? Tail::kLogits
                                   : Tail::kEpilogue,
              names::kScaleLeakyReLU};
    for (EpilogueId other : {names::kScaleBatchNorm, names::kAddScaled, names::kOpen}) {
      if (word("epilogue") == other.name) tail.epilogue = other;
    }
    tail.is_bare = number("bare", 0) != 0;
    tail.keeps_z = number("keeps_z", 0) != 0;
    tail.has_centre = number("has_centre", 0) != 0;
    tail.is_last = number("is_last", 1) != 0;
    tail.y_alignment = int(number("tail_y", 16));
    return tail;
  }

  // As a build does without a word of them: "sm90=0" and "sm100=1" are others.
  bool has_compiled(ArchId arch) const {
    return number(spec_of(arch).name, kArchRows[int(arch)].tested) != 0;
  }

  Device device() const {
    int const capability = int(number("capability", 90));
    ArchSet archs;
    for (ArchRow const& row : kArchRows) {
      bool const runs = row.gpu == 0 || row.gpu == capability;
      if (runs && has_compiled(row.id)) archs = archs.with(row.id);
    }
    return {int(number("gpu", 0)),
            int(number("sms", 132)),
            int(number("memory", 227) * 1024),
            capability,
            archs.has(ArchId::kSm90) ? 90 : 80,
            archs,
            int(number("memory_gb_s", Device::kTimedGbS))};
  }

  Overrides overrides() const {
    Overrides overrides{find_tile("forced"), find_tile("tuned"), {}};
    std::istringstream parts(word("struck"));
    for (std::string part; std::getline(parts, part, ',');) {
      overrides.struck = overrides.struck.with(kParts.at(part));
    }
    return overrides;
  }

 private:
  TileOverride const* find_tile(std::string const& name) const {
    if (word(name).empty()) return nullptr;
    TileOverride const* const tile = find_named_tile(word(name));
    if (tile == nullptr) throw std::runtime_error("no tile " + word(name));
    return tile;
  }

  std::map<std::string, std::string> values_;
};

std::string name_repair(Repair repair) {
  return repair == Repair::kNone ? "" : repair == Repair::kRows ? " repair" : " repair+merge";
}

// "1 2 0 scale_leaky_relu": generation, Math row, tile, epilogue; "-" where no kernel of the
// registry multiplies.
std::string name_kernel(Plan const& plan, Problem const& problem) {
  if (!has_kernel(plan.product)) return "-";
  KernelKey const key = make_kernel_key(plan, problem);
  return std::to_string(int(key.arch)) + " " + std::to_string(int(key.math)) + " " +
         std::to_string(key.tile) + " " + key.epilogue.name;
}

// What src/launch would strike out if the launch were refused; "-": it cannot be.
std::string name_refused(Plan const& plan) {
  bool const is_sm90 = has_kernel(plan.product) && plan.product.arch != ArchId::kSm80;
  bool const is_cublas = plan.product.by == ProductBy::kCublas;
  if (!is_cublas && !plan.copies.any() && !is_sm90) return "-";
  Part const refused = is_cublas           ? Part::kCublas
                       : plan.copies.any() ? Part::kCopies
                                           : find_refused(plan);
  for (auto const& [name, part] : kParts) {
    if (part == refused) return name;
  }
  return "unknown";
}

void print_plan(Call const& call) {
  Problem const problem = call.problem();
  Plan const plan = make_plan(problem, call.tail(), call.device(), call.overrides());
  std::cout << describe_arch(plan.product) << ' ' << describe_math(plan.product, problem.math)
            << ": " << describe(plan, problem.math) << '\t' << name_kernel(plan, problem) << '\t'
            << name_refused(plan) << '\t' << (plan.splits ? "splits" : "")
            << name_repair(plan.repair) << (plan.transposes ? " transposes" : "");
}

void print_others(Call const& call) {
  Problem const problem = call.problem();
  Plan const plan = make_plan(problem, call.tail(), call.device(), call.overrides());
  for (Plan const& other : list_other_tiles(plan, problem, call.device())) {
    std::cout << describe_arch(other.product) << ' ' << describe(other, problem.math) << '\t';
  }
}

void print_batch(Call const& call) {
  Problem const problem = call.problem();
  std::cout << describe_kernel(choose_batched(problem, call.device(), call.overrides()),
                               problem.math);
}

void print_key(Call const& call) {
  PlanKey const key = make_plan_key(call.problem(), call.tail(), call.device(), call.overrides());
  for (int64_t word : key) std::cout << word << ' ';
}

void print_tiles(Call const& call) {
  MathId const math = call.problem().math;
  for (ArchId arch : kNewestFirst) {
    bool const listed = call.has_compiled(arch);
    for (int i = 0; listed && i < spec_of(arch).count(math); ++i) {
      std::cout << spec_of(arch).name_tile(math, i) << ' ';
    }
  }
}

void print_mixed(Call const& call) {
  Problem const problem = call.problem();
  Device const device = call.device();
  ProductPlan const plan = choose_mixed(problem, call.tail(), device, call.overrides().forced);
  bool const is_there = plan.by == ProductBy::kTf32x3;
  std::cout << (is_there ? describe_kernel(plan, problem.math) : "-") << ' '
            << choose_mixed_tile(problem, device).cost_ns << ' '
            << int64_t(cost_of_widened(problem, call.tail(), device));
}

// Nanoseconds of fp32 matrices: as they lie, and as split rows of a weight whose parts are kept, or
// are to be made.
void print_costs(Call const& call) {
  Problem const problem = call.problem();
  Device const device = call.device();
  SplitChoice const choice = choose_split(problem, call.tail().epilogue, device);
  SplitCost const cost = cost_of_split_rows(problem, choice, device);
  std::cout << cost_as_they_lie(choose_tf32x3(problem, device), problem, device) << ' ' << cost.kept
            << ' ' << cost.missing;
}

void print_shares(Call const& call) {
  Problem const problem = call.problem();
  TileOverride const forced = *call.overrides().forced;
  TileShapeTf32x3 const& tile = TilesTf32x3::kShapes[find_tile_tf32x3(forced.tile)];
  int64_t const tiles = count_tiles_tf32x3(tile, problem.m, problem.n, problem.batch);
  auto const [slices, parts] = share_out_tf32x3(tile, forced.raster.count, tiles, call.device());
  std::cout << slices << ' ' << parts;
}

int main() {
  std::map<std::string, void (*)(Call const&)> const commands{
      {"plan", print_plan},     {"batch", print_batch},  {"key", print_key},
      {"tiles", print_tiles},   {"costs", print_costs},  {"mixed", print_mixed},
      {"shares", print_shares}, {"others", print_others}};
  for (std::string line, command; std::getline(std::cin, line);) {
    std::istringstream in(line);
    in >> command;
    commands.at(command)(Call(in));
    std::cout << std::endl;
  }
}
