// Which kernel multiplies rows that are split, and along which side a weight is split for it.
//
// A weight that lies along N, as the gradient of x has that of a Linear, is split as it lies where
// kernels can sum across its parts: these are the parts that the product forward reads, and are
// made in one pass over rows, not in two over columns. The scales of its rows go to the parts of x.
#pragma once

#include "cutlass_fused/epilogue/names.hpp"
#include "cutlass_fused/gemm/tma_rows.hpp"
#include "cutlass_fused/plan/choose_product.hpp"

namespace cutlass_fused {

// Whether the parts of such a weight, of which a product has n rows, are those of the rows of its
// transpose. This depends on no more than what split_weight knows.
inline bool has_parts_along_n(MathId math, Major weight, int64_t n, Device const& device) {
  constexpr int64_t kWhole = 4;  // of n: TMA writes rows of y that begin at multiples of 16 bytes
  return splits_rows(math) && weight == Major::kMn && n % kWhole == 0 &&
         device.archs.has(ArchId::kSm90);
}

// Whether there are kernels for it. One epilogue has them: that of gradients.
inline bool reads_parts_along_n(Problem const& given, EpilogueId const& epilogue,
                                Device const& device) {
  return has_parts_along_n(given.math, given.weight.major, given.n, device) &&
         tma_writes_rows(given, DataType::kFloat32) &&
         epilogue == EpilogueId{names::kScaleLeakyReLU};
}

// A product of split rows, and whether the weight's lie along N.
struct SplitChoice {
  ProductPlan product;
  bool along_n = false;
};

// `choose` gives the product of a problem of parts.
template <class Choose>
SplitChoice choose_split(Problem const& given, EpilogueId const& epilogue, Device const& device,
                         Choose const& choose) {
  if (reads_parts_along_n(given, epilogue, device)) {
    ProductPlan const product = choose(parts_of(given, /*along_n=*/true));
    if (product.by == ProductBy::kTile && product.arch == ArchId::kSm90) return {product, true};
  }
  return {choose(parts_of(given, /*along_n=*/false))};
}

// By the estimates.
inline SplitChoice choose_split(Problem const& given, EpilogueId const& epilogue,
                                Device const& device) {
  return choose_split(given, epilogue, device,
                      [&](Problem const& parts) { return choose_newest(parts, device, {}); });
}

}  // namespace cutlass_fused
