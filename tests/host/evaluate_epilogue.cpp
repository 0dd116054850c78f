// Reads an epilogue's name and its operands for one column, and prints what its functor makes of
// an accumulator: the arithmetic of the kernels, run on the host. A matrix is read as
// "<row stride> <column stride> <batch stride> <value>", or "absent 0".
#include <cstdio>
#include <vector>

#include "cutlass_fused/epilogue/add_scaled.hpp"
#include "cutlass_fused/epilogue/bias.hpp"
#include "cutlass_fused/epilogue/scale_batch_norm.hpp"
#include "cutlass_fused/epilogue/scale_leaky_relu.hpp"
#include "cutlass_fused/epilogue/unscaled.hpp"
#include "evaluate_twice.hpp"

using namespace cutlass_fused;

// The value lies at (row 0, kColumn) of the first matrix of a batch; all else is NaN.
StridedMatrix read_matrix(std::vector<float>& storage) {
  std::string first;
  std::cin >> first;
  if (first == "absent") return read_number(), StridedMatrix{};
  StridedMatrix matrix{nullptr, std::stol(first), int64_t(read_number()), int64_t(read_number())};
  storage.assign(16, NAN);
  storage[kColumn * matrix.column_stride] = read_number();
  matrix.data = storage.data();
  return matrix;
}

// At another row of another matrix the same value is found if the matrix is shifted back by as
// much.
template <class Epilogue>
float evaluate_elsewhere(typename Epilogue::Args args, float acc) {
  using Operands = Columns<typename Epilogue::Tree>;
  constexpr int kRow = 3, kBatch = 2;
  float const y = evaluate_twice<Epilogue>(args, acc);
  if (args.c.data != nullptr) {
    args.c.data -= kRow * args.c.row_stride + kBatch * args.c.batch_stride;
  }
  auto const packed = Evaluator<typename Epilogue::Tree>::pack(args.operands());
  float const values[1] = {};
  float const other = Operands::apply(packed, values, 1, acc, kRow, kColumn,
                                      Operands::fetch(packed, kRow, kColumn, kBatch));
  return y == other || (std::isnan(y) && std::isnan(other)) ? y : INFINITY;
}

int main() {
  VectorStorage s[6];
  std::vector<float> matrix;
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
    if (name == AddScaled::kName) {
      AddScaled::Args args{read_matrix(matrix)};
      args.alpha = read_number();
      args.beta = read_number();
      y = evaluate_elsewhere<AddScaled>(args, acc);
    } else if (name == "unscaled.add_scaled") {
      AddScaled::Args const added{read_matrix(matrix), 2.0f, -1.0f};
      float const h = read_number(), least = read_number();
      RowScale const scales[] = {{NAN}, RowScale::make(h, least)};
      y = evaluate_twice<Unscaled<AddScaled>>({added, {scales + 1}, {scales}}, acc);
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
