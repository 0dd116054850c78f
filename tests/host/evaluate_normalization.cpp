// Reads a functor's name, an element x and the vectors of one column, and prints what the functor
// makes of x, and its factor for all columns if it has one. NaN: the functor does not fit them.
#include <cstdio>

#include "cutlass_fused/norm/normalization.hpp"
#include "read_vector.hpp"

using namespace cutlass_fused;

template <class Map>
float apply(Map const& map, float x) {
  return map.convert(map.fetch(kColumn))(x);
}

ScaledNormalization read_map(VectorStorage (&s)[5]) {
  ScaledNormalization map;
  map.normalization.mean = read_vector(s[0]);
  map.normalization.a = read_vector(s[1]);
  map.normalization.d = read_vector(s[2]);
  map.scale = read_vector(s[3]);
  return map;
}

int main() {
  VectorStorage s[5];
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
      y = apply(read_map(s), x);
    } else if (name == "uniform") {
      ScaledNormalization const map = read_map(s);
      y = factor = NAN;
      if (UniformNormalization::fits(map)) {
        y = apply(UniformNormalization(map), x);
        factor = UniformNormalization(map).factor();
      }
    } else if (name == "running") {
      RunningNormalization normalization;
      normalization.mean = read_vector(s[0]);
      normalization.a.gamma = read_vector(s[1]);
      normalization.a.var = read_vector(s[2]);
      normalization.a.eps = read_number();
      normalization.d = read_vector(s[3]);
      y = apply(normalization, x);
    }
    std::printf("%.9g %.9g\n", y, factor);
  }
}
