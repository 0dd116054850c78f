// Reads an epilogue's name and its operands for one column, and prints what its functor makes of
// an accumulator: the arithmetic of the kernels, run on the host.
#include <cstdio>

#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/epilogue/unscaled.hpp"
#include "evaluate_twice.hpp"

using namespace cutlass_fused;

int main() {
  VectorStorage s[6];
  std::string name;
  while (std::cin >> name) {
    float const acc = read_number();
    float y = NAN;
    if (name == "bias") {
      y = evaluate_twice<ScaleLeakyReLU>(bias_alone(read_vector(s[0])), acc);
    } else if (name == ScaleLeakyReLU::kName) {
      ScaleLeakyReLU::Args args;
      args.bias = read_vector(s[0]);
      args.scale.scale = read_vector(s[1]);
      args.scale.multiplier = read_number();
      args.slope = read_number();
      y = evaluate_twice<ScaleLeakyReLU>(args, acc);
    } else if (name == ScaleBatchNorm::kName) {
      ScaleBatchNorm::Args args;
      args.bias = read_vector(s[0]);
      args.scale = read_vector(s[1]);
      args.mean = read_vector(s[2]);
      args.var = read_vector(s[3]);
      args.gamma = read_vector(s[4]);
      args.beta = read_vector(s[5]);
      args.eps = read_number();
      y = evaluate_twice<ScaleBatchNorm>(args, acc);
    }
    if (name == "unscaled") {
      float numbers[4];  // h of x and of weight, the least sums of both
      for (float& number : numbers) number = read_number();
      RowScale const x[] = {RowScale::make(numbers[0], numbers[2])};
      RowScale const weight[] = {{NAN}, RowScale::make(numbers[1], numbers[3])};
      Unscaled<ScaleLeakyReLU>::Args args{{}, {x}, {weight}};
      args.epilogue.slope = 1.0f;
      y = evaluate_twice<Unscaled<ScaleLeakyReLU>>(args, acc);
    }
    std::printf("%.9g\n", y);
  }
}
