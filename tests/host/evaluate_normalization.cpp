// Reads a functor's name, an element x and the vectors of one column, and prints what the functor
// makes of x, and its factor for all columns if it has one.
#include <cstdio>

#include "cutlass_fused/normalization.hpp"
#include "read_vector.hpp"

using namespace cutlass_fused;

template <class Normalization>
float apply(Normalization const& normalization, float x) {
  return normalization.column(kColumn)(x);
}

int main() {
  Storage s[5];
  std::string name;
  while (std::cin >> name) {
    float const x = read_number();
    float y = NAN, factor = 1.0f;
    if (name == "identity") {
      y = apply(Identity{}, x);
      factor = Identity{}.factor();
    } else if (name == "scaled") {
      Scaled const scaled{read_vector(s[0])};
      y = apply(scaled, x);
      factor = scaled.factor();
    } else if (name == "batch") {
      Normalization normalization;
      normalization.mean = read_vector(s[0]);
      normalization.a = read_vector(s[1]);
      normalization.d = read_vector(s[2]);
      normalization.scale = read_vector(s[3]);
      y = apply(normalization, x);
    } else if (name == "uniform") {
      UniformNormalization normalization;
      normalization.mean = read_vector(s[0]);
      normalization.a = read_vector(s[1]);
      normalization.d = read_vector(s[2]);
      Storage& one = s[3];
      normalization.scale = read_vector(one);
      // Of this vector element 0 is read, wherever its column is.
      if (normalization.scale.data != nullptr) {
        normalization.scale.data = static_cast<char const*>(normalization.scale.data) +
                                   normalization.scale.stride * size_of(normalization.scale.type);
      }
      y = apply(normalization, x);
      factor = normalization.factor();
    } else if (name == "running") {
      RunningNormalization normalization;
      normalization.mean = read_vector(s[0]);
      normalization.a.gamma = read_vector(s[1]);
      normalization.a.var = read_vector(s[2]);
      normalization.a.eps = read_number();
      normalization.d = read_vector(s[3]);
      normalization.scale = read_vector(s[4]);
      y = apply(normalization, x);
    }
    std::printf("%.9g %.9g\n", y, factor);
  }
}
