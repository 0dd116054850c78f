// Reads a functor's name, an element x and the vectors of one column, and prints what the functor
// makes of x, and its factor for all columns if it has one.
#include <cstdio>

#include "cutlass_fused/normalization.hpp"
#include "read_vector.hpp"

using namespace cutlass_fused;

template <class Map>
float apply(Map const& map, float x) {
  return map.convert(map.fetch(kColumn))(x);
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
      ScaledNormalization map;
      map.normalization.mean = read_vector(s[0]);
      map.normalization.a = read_vector(s[1]);
      map.normalization.d = read_vector(s[2]);
      map.scale = read_vector(s[3]);
      y = apply(map, x);
    } else if (name == "uniform") {
      UniformNormalization map;
      map.normalization.mean = read_vector(s[0]);
      map.normalization.a = read_vector(s[1]);
      map.normalization.d = read_vector(s[2]);
      map.scale = read_vector(s[3]);
      // Of this vector element 0 is read, wherever its column is.
      if (map.scale.data != nullptr) {
        map.scale.data =
            static_cast<char const*>(map.scale.data) + map.scale.stride * size_of(map.scale.type);
      }
      y = apply(map, x);
      factor = map.factor();
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
