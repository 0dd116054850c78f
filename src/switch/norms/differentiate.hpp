// Gradients of a batch norm in training, as functions in C++ share them.
#pragma once

#include "switch/gradients.hpp"

namespace cutlass_fused {

// The gradients of z, gamma and beta through the statistics of the batch.
struct NormGradients {
  Tensor z, gamma, beta;
};

// Whether kernels of this package take a gradient that goes through these statistics.
bool has_kernels(Tensor const& grad_y, Tensor const& z, Tensor const& rstd);

// None where the tensor is undefined.
c10::IValue optional(Tensor const& tensor);

// `round_vectors`: the gradients of gamma and beta may have the dtype of z. As
// differentiate_batch_norm of cutlass_fused/functional/_batch_norm.py, which has the formula.
NormGradients differentiate_norm(Tensor grad_y, Tensor z, Tensor const& mean, Tensor const& rstd,
                                 Tensor gamma, double eps, bool round_vectors = false);

// Places among the inputs that are tensors, as needs_input_grad counts; -1: it is none. `first`:
// that of the first.
std::vector<int64_t> place_inputs(std::initializer_list<OptionalTensor const*> tensors,
                                  int64_t first);

}  // namespace cutlass_fused
