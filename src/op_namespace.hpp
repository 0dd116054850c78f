// The namespace of the ops in torch.ops. A build may choose another one: then two versions of this
// library are loaded side by side.
#pragma once

#ifndef CUTLASS_FUSED_OP_NAMESPACE
#define CUTLASS_FUSED_OP_NAMESPACE cutlass_fused
#endif

#define CUTLASS_FUSED_QUOTE_WORD(word) #word
#define CUTLASS_FUSED_QUOTE(word) CUTLASS_FUSED_QUOTE_WORD(word)

// OP_NAMESPACE: "cutlass_fused", and OP_NAME("linear"): "cutlass_fused::linear".
#define OP_NAMESPACE CUTLASS_FUSED_QUOTE(CUTLASS_FUSED_OP_NAMESPACE)
#define OP_NAME(op) OP_NAMESPACE "::" op
