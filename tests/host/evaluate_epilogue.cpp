// Reads an epilogue's name and its operands for one column, and prints what its functor makes of
// an accumulator: the arithmetic of the kernels, run on the host.
#include <cstdio>
#include <iostream>
#include <string>

#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/epilogue/evaluate.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"

using namespace cutlass_fused;

// The column under test is the second of two, each vector has a stride of two, and every other
// element is NaN: a functor that reads a wrong place is noticed.
constexpr int kColumn = 1;

struct Storage {
  float values[4];
  __half half_values[4];
  __nv_bfloat16 bfloat_values[4];
};

Vector read_vector(Storage& storage) {
  std::string type;
  std::string text;
  std::cin >> type >> text;
  float const value = std::stof(text);
  for (int i = 0; i < 4; ++i) {
    float const element = i == 2 * kColumn ? value : NAN;
    storage.values[i] = element;
    storage.half_values[i] = __float2half_rn(element);
    storage.bfloat_values[i] = __float2bfloat16_rn(element);
  }
  if (type == "absent") return Vector::constant(value);
  if (type == "float16") return {storage.half_values, 2, DataType::kFloat16, 0.0f};
  if (type == "bfloat16") return {storage.bfloat_values, 2, DataType::kBFloat16, 0.0f};
  if (type == "one") return {storage.values + 2, 0, DataType::kFloat32, 0.0f};
  return {storage.values, 2, DataType::kFloat32, 0.0f};
}

float read_number() {
  std::string text;
  std::cin >> text;
  return std::stof(text);
}

int main() {
  Storage s[6];
  std::string name;
  while (std::cin >> name) {
    float const acc = read_number();
    float y = NAN;
    if (name == Bias::kName) {
      y = evaluate<Bias>({read_vector(s[0])}, acc, 0, kColumn);
    } else if (name == ScaleLeakyReLU::kName) {
      ScaleLeakyReLU::Args args;
      args.bias = read_vector(s[0]);
      args.scale.scale = read_vector(s[1]);
      args.scale.multiplier = read_number();
      args.slope = read_number();
      y = evaluate<ScaleLeakyReLU>(args, acc, 0, kColumn);
    } else if (name == ScaleBatchNorm::kName) {
      ScaleBatchNorm::Args args;
      args.bias = read_vector(s[0]);
      args.scale = read_vector(s[1]);
      args.mean = read_vector(s[2]);
      args.var = read_vector(s[3]);
      args.gamma = read_vector(s[4]);
      args.beta = read_vector(s[5]);
      args.eps = read_number();
      y = evaluate<ScaleBatchNorm>(args, acc, 0, kColumn);
    }
    std::printf("%.9g\n", y);
  }
}
