// Reads an epilogue's name and its operands for one column, and prints what its functor makes of
// an accumulator: the arithmetic of the kernels, run on the host.
#include <cstdio>

#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/epilogue/evaluate.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "read_vector.hpp"

using namespace cutlass_fused;

int main() {
  Storage s[6];
  std::string name;
  while (std::cin >> name) {
    float const acc = read_number();
    float y = NAN;
    if (name == Bias::kName) {
      y = evaluate<Bias>({read_vector(s[0])}, acc, 0, kColumn);
    } else if (name == "bias_on_sm90") {
      using Serving = OnSm90<Bias>;
      y = evaluate<Serving::type>(Serving::convert({read_vector(s[0])}), acc, 0, kColumn);
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
