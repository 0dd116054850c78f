// Runs an AOTInductor package as a program without Python does:
//
//   run_package LIBRARY DEVICE PACKAGE INPUTS RESULTS
//
// INPUTS is what torch.save writes of a list of tensors, each the input of one call. RESULTS, which
// torch.load reads, is a tuple: the outputs of each call, and pairs of a name and a constant, which
// the package holds behind the last one.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/library.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

// The arguments of a call by name. An op lacks most of the names that are asked for.
class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, c10::Stack& stack) {
    const auto values = torch::jit::pop(stack, schema.arguments().size());
    for (size_t i = 0; i < values.size(); ++i) {
      values_[schema.arguments()[i].name()] = values[i];
    }
  }

  template <class T>
  std::optional<T> find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || found->second.isNone()) {
      return std::nullopt;
    }
    return found->second.to<T>();
  }

 private:
  std::unordered_map<std::string, c10::IValue> values_;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void move(const std::optional<at::Tensor>& running, const at::Tensor& batch, double factor) {
  if (running) {
    running->copy_((1 - factor) * running->to(batch.scalar_type()) + factor * batch);
  }
}

// The library has kernels for CUDA tensors alone, and the CPU's are Python functions. For this
// program all of them are this one: the formula that the op's name tells, of the arguments that it
// has. What is tested is that each arrives as the package means it.
void compute(const c10::OperatorHandle& op, c10::Stack* stack) {
  const std::string name = op.schema().name();
  const Arguments arguments(op.schema(), *stack);
  const auto tensor = [&](const char* key) { return arguments.find<at::Tensor>(key); };
  const at::Tensor x = *tensor("x");
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const bool training = contains(name, "_train");

  at::ScalarType dtype = arguments.find<at::ScalarType>("out_dtype").value_or(x.scalar_type());
  if (const auto out = arguments.find<std::string>("out")) {
    TORCH_CHECK(*out == "float32", "out must be float32, got ", *out);
    dtype = at::kFloat;
  }
  at::Tensor y = x.to(wide);
  if (const auto weight = tensor("weight")) {
    const auto bias = tensor("bias");
    y = at::linear(y, weight->to(wide), bias ? bias->to(wide) : at::Tensor());
  }
  const auto scale = tensor("scale");
  if (contains(name, "linear_scale")) {
    y = y * arguments.find<double>("multiplier").value_or(1);
    y = scale ? y * *scale : y;
  }
  if (contains(name, "leaky_relu")) {
    y = at::leaky_relu(y, arguments.find<double>("negative_slope").value());
  }
  at::Tensor mean, rstd;
  if (contains(name, "batch_norm")) {
    const auto running_mean = tensor("running_mean"), running_var = tensor("running_var");
    const double eps = arguments.find<double>("eps").value();
    if (training) {
      mean = y.mean(0);
      rstd = at::rsqrt(at::var(y, 0, /*unbiased=*/false) + eps);
      const auto count = tensor("num_batches_tracked");
      if (count) {
        count->add_(1);
      }
      const auto momentum = arguments.find<double>("momentum");
      const double factor = momentum ? *momentum : 1 / count->item<double>();
      move(running_mean, mean, factor);
      move(running_var, at::var(y, 0, /*unbiased=*/true), factor);
    } else {
      mean = running_mean->to(wide);
      rstd = at::rsqrt(running_var->to(wide) + eps);
    }
    y = (y - mean) * rstd;
    const auto gamma = tensor("gamma"), beta = tensor("beta");
    y = gamma ? y * *gamma : y;
    y = beta ? y + *beta : y;
  }
  if (contains(name, "softmax")) {
    y = at::softmax(scale ? y * *scale : y, 1);
  }
  stack->emplace_back(y.to(dtype));
  if (training) {
    if (tensor("weight")) {
      // What the backward pass would read, for which a package has no use, but for its shape.
      const auto rows = *arguments.find<bool>("keep_z") ? y.size(0) : 0;
      stack->emplace_back(at::zeros({rows, y.size(1)}, y.options().dtype(dtype)));
    }
    stack->emplace_back(mean);
    stack->emplace_back(rstd);
  }
}

TORCH_LIBRARY_IMPL(cutlass_fused, CPU, library) {
  for (const char* name :
       {"linear", "linear_scale_leaky_relu", "linear_scale_batch_norm_inference",
        "linear_scale_batch_norm_train", "linear_batch_norm_scale_softmax_inference",
        "linear_batch_norm_scale_softmax_train", "batch_norm_inference", "batch_norm_train",
        "softmax"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute>());
  }
}

std::vector<char> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, path, " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

c10::IValue call(torch::inductor::AOTIModelPackageLoader& loader, const at::Tensor& input) {
  std::vector<c10::IValue> outputs;
  for (const at::Tensor& output : loader.run({input})) {
    outputs.emplace_back(output.cpu());
  }
  return c10::ivalue::Tuple::create(std::move(outputs));
}

c10::IValue read_constants(torch::inductor::AOTIModelPackageLoader& loader) {
  std::vector<c10::IValue> constants;
  const auto found = loader.get_runner()->extract_constants_map(/*use_inactive=*/false);
  for (const auto& [name, constant] : found) {
    constants.push_back(c10::ivalue::Tuple::create({name, constant.cpu()}));
  }
  return c10::ivalue::Tuple::create(std::move(constants));
}

void run(char** paths) {
  // It registers its ops when it is loaded.
  TORCH_CHECK(dlopen(paths[0], RTLD_NOW | RTLD_LOCAL), dlerror());
  const c10::InferenceMode no_gradients;
  torch::inductor::AOTIModelPackageLoader loader(paths[2]);
  const c10::IValue inputs = torch::jit::pickle_load(read(paths[3]));
  std::vector<c10::IValue> results;
  for (const c10::IValue& input : inputs.toListRef()) {
    results.push_back(call(loader, input.toTensor().to(c10::Device(paths[1]))));
  }
  results.push_back(read_constants(loader));
  const auto bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(results)));
  std::ofstream file(paths[4], std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TORCH_CHECK(file.flush(), paths[4], " cannot be written");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    TORCH_CHECK(count == 6, "run_package LIBRARY DEVICE PACKAGE INPUTS RESULTS");
    run(arguments + 1);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
