// What a kernel of a product is launched with.
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass_fused/common/types.hpp"
#include "cutlass_fused/epilogue/unscaled.hpp"
#include "cutlass_fused/norm/ranges.hpp"
#include "cutlass_fused/plan/raster.hpp"

namespace cutlass_fused {

// What a call needs beside its tensors.
struct Launch {
  Device device;
  void* workspace;  // as many bytes as the kernel asks for, 256-byte aligned; may hold anything
  cudaStream_t stream;
};

// Operands as a plan has them laid out, and what stands behind the product, packed: the Args of the
// epilogue that the kernel was registered with, and what only some kernels read.
struct ProductLaunch {
  GemmArgs gemm;
  Raster raster;
  void const* epilogue;
  RowScales x_scales = {}, weight_scales = {};  // of split rows
  PartPointers parts = {};                      // of kernels that find statistics
  unsigned* strips = nullptr;                   // ... whose strips are normalized meanwhile
  Launch launch = {};
};

// The Args of an epilogue, with the scales where the product is one of split rows.
template <class Epilogue>
struct UnpackArgs {
  static typename Epilogue::Args const& unpack(ProductLaunch const& call) {
    return *static_cast<typename Epilogue::Args const*>(call.epilogue);
  }
};
template <class Epilogue>
struct UnpackArgs<Unscaled<Epilogue>> {
  static typename Unscaled<Epilogue>::Args unpack(ProductLaunch const& call) {
    return {UnpackArgs<Epilogue>::unpack(call), call.x_scales, call.weight_scales};
  }
};

// What a call brings along whose epilogue is open (epilogue/open/open.hpp): the kernel, as CUDA's
// runtime launches it, and the matrix that it reads by TMA. Others are compiled, and read none.
template <class Epilogue>
struct OpenCall {
  static constexpr bool kIsOpen = false;
  static void const* entry(ProductLaunch const&) { return nullptr; }
  static Source source(ProductLaunch const&) { return {}; }
};
template <class Epilogue>
struct OpenCall<Unscaled<Epilogue>> : OpenCall<Epilogue> {};

}  // namespace cutlass_fused
