// Runs an AOTInductor package of a fused model, without Python:
//
//   run_package LIBRARY PACKAGE INPUT RESULT [CALLS]
//
// LIBRARY is libcutlass_fused.so; "none" for a package without its ops. INPUT is what torch.save
// writes of a tensor. RESULT, which torch.load reads, is a tuple of the model's results. CALLS more
// calls are timed, and the median is printed.
#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;

std::vector<char> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, path, " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::vector<at::Tensor>& results) {
  std::vector<c10::IValue> values;
  for (const at::Tensor& result : results) {
    values.emplace_back(result.cpu());
  }
  const auto bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(values)));
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TORCH_CHECK(file.flush(), path, " cannot be written");
}

// Of a call, from an idle device until it is done.
double find_median_microseconds(Loader& loader, const at::Tensor& x, int calls) {
  const c10::impl::VirtualGuardImpl device(x.device().type());
  const auto wait = [&] {
    if (!x.is_cpu()) {
      device.synchronizeDevice(x.device().index());
    }
  };
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    loader.run({x});
    wait();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[calls / 2];
}

void run(const std::vector<std::string>& arguments) {
  const std::string& library = arguments[0];
  // It registers its ops as it is loaded, and stays.
  TORCH_CHECK(library == "none" || dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), dlerror());
  const c10::InferenceMode no_gradients;
  Loader loader(arguments[1]);
  c10::Device place(loader.get_metadata().at("AOTI_DEVICE_KEY"));
  if (!place.is_cpu() && !place.has_index()) {
    place.set_index(0);
  }
  const at::Tensor x = torch::jit::pickle_load(read(arguments[2])).toTensor().to(place);
  write(arguments[3], loader.run({x}));
  const int calls = arguments.size() > 4 ? std::stoi(arguments[4]) : 0;
  if (calls > 0) {
    std::cout << find_median_microseconds(loader, x, calls) << " us a call of " << x.size(0)
              << " rows on " << place << ", the median of " << calls << "\n";
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    TORCH_CHECK(count == 5 || count == 6, "run_package LIBRARY PACKAGE INPUT RESULT [CALLS]");
    run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
