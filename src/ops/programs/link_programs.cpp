// link_epilogue and link_pointwise: the kernels of linear_epilogue and apply_program, ahead of time
#include "launch/programs/link_ahead.hpp"
#include "checks/device.hpp"
#include "op_namespace.hpp"

#include <torch/csrc/stable/library.h>
#include <torch/headeronly/util/Exception.h>

namespace cutlass_fused {
namespace {

int check_gpu(char const* op, int64_t compute_capability) {
  int const checked = static_cast<int>(compute_capability);
  STD_TORCH_CHECK(checked >= 80 && has_code_for(checked), op, ": the GPU must be one of ",
                  compiled_architectures(), ", which this build was compiled for, got ", checked);
  return checked;
}

std::vector<program::Element> read_elements(char const* op,
                                            std::vector<std::string> const& operands) {
  std::vector<program::Element> elements;
  for (std::string const& each : operands) elements.push_back(check_element(op, each));
  return elements;
}

// "new NAME", "kept NAME", "refused NAME: why" or, where it could not be written, "failed NAME:
// why".
std::vector<std::string> describe(std::vector<Linked> const& linked) {
  std::vector<std::string> texts;
  for (Linked const& each : linked) {
    if (!each.refusal.empty()) {
      texts.push_back("refused " + each.name + ": " + each.refusal);
    } else if (!each.write_error.empty()) {
      texts.push_back("failed " + each.name + ": " + each.write_error);
    } else {
      texts.push_back((each.is_new ? "new " : "kept ") + each.name);
    }
  }
  return texts;
}

std::vector<std::string> link_epilogue(std::string program, std::vector<std::string> operands,
                                       std::string dtype, std::string precision, std::string out,
                                       int64_t compute_capability, int64_t m, int64_t n,
                                       int64_t k) {
  constexpr char kOp[] = "link_epilogue";
  auto const read = read_program(kOp, program, operands.size());
  if (n > 0) check_columns(kOp, *read, n);
  program::Type const type = check_type(kOp, dtype);
  auto const types = check_outputs(kOp, out, type, read->outputs.size());
  ProductToLink const product{to_data_type(type),
                              check_precision(kOp, precision),
                              check_gpu(kOp, compute_capability),
                              m,
                              n,
                              k};
  return describe(link_within(product, *read, read_elements(kOp, operands), types));
}

std::vector<std::string> link_pointwise(std::string program, std::vector<std::string> operands,
                                        std::string dtype, std::string out,
                                        int64_t compute_capability, int64_t m, int64_t n) {
  constexpr char kOp[] = "link_pointwise";
  auto const read = read_program(kOp, program, operands.size());
  if (n > 0) check_columns(kOp, *read, n);
  program::Type const type = check_type(kOp, dtype);
  Results const results = check_results(kOp, out, type, *read);
  std::vector<program::Element> inputs = read_elements(kOp, operands);
  inputs.insert(inputs.begin(), {type, program::Kind::kTile});
  return describe(cutlass_fused::link_pointwise(check_gpu(kOp, compute_capability), m, n, *read,
                                                inputs, results));
}

STABLE_TORCH_LIBRARY_IMPL(CUTLASS_FUSED_OP_NAMESPACE, CompositeExplicitAutograd, m) {
  m.impl("link_epilogue", TORCH_BOX(&link_epilogue));
  m.impl("link_pointwise", TORCH_BOX(&link_pointwise));
}

}  // namespace
}  // namespace cutlass_fused
