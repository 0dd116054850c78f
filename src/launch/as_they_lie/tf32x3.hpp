// Products of fp32 matrices as they lie, by the kernel of a plan.
#pragma once

#include <optional>

#include "cutlass_fused/gemm/tf32x3/run.hpp"
#include "launch/allocate.hpp"
#include "launch/product.hpp"
#include "checks/status.hpp"

namespace cutlass_fused {

// run(shares of K, workspace), the workspace being on the device of `like`.
template <class Run>
void launch_in_shares(char const* op, FloatProduct const& product, ProductPlan const& plan,
                      Device const& device, Tensor const& like, Run const& run) {
  TileShapeTf32x3 const& tile = TilesTf32x3::kShapes[plan.tile];
  int64_t const tiles = count_tiles_tf32x3(tile, product.m, product.n, product.batch);
  SharesTf32x3 const shares = share_out_tf32x3(tile, plan.raster.count, tiles, device);
  std::optional<Tensor> workspace;
  int64_t const bytes = workspace_tf32x3(tile, shares, product.m, product.n, product.batch);
  if (bytes > 0) workspace = allocate(like, {bytes}, ScalarType::Byte);
  check_status(op, run(shares, workspace ? workspace->mutable_data_ptr() : nullptr));
}

// On the current stream of the device, that of `like`.
inline void launch_tf32x3(char const* op, FloatProduct product, Precision precision,
                          ProductPlan const& plan, EpilogueCall const& epilogue,
                          Device const& device, Tensor const& like) {
  product.in_tf32 = precision == Precision::kTf32;
  RunTf32x3 const run = find_tf32x3(TilesTf32x3::kShapes[plan.tile].arch, epilogue.id);
  STD_TORCH_CHECK(run != nullptr, op, ": this build has no kernel ", epilogue.id.name,
                  " of tf32x3");
  launch_in_shares(op, product, plan, device, like,
                   [&](SharesTf32x3 const& shares, void* workspace) {
                     return run(product, plan.tile, shares, workspace, epilogue.args,
                                epilogue.is_bare, device, current_stream(device));
                   });
}

}  // namespace cutlass_fused
