// The native CPU path: glue between tensors and the torch-free kernels of cpu/.
#pragma once

#include "ops/call.h"

namespace torchpairwise::ops {

// Reasons why the native kernels cannot run this call; empty when they can.
std::vector<std::string> cpu_why_not(const Call& call);

// Results in the order of the consumer's record. Requires cpu_why_not(call).empty().
std::vector<at::Tensor> cpu_forward(const Call& call);

// Gradients of the operands and of the values (last) that `needs` asks for, in order; entries that it does not ask for are left out.
// `gradients` are those of the results (undefined where a result got none), `saved` the results themselves.
std::vector<at::Tensor> cpu_replay(const Call& call, const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& saved,
                                   const std::vector<bool>& needs);

// cpu_forward() of a symmetric matrix, from the pairs on one side of the diagonal.
std::vector<at::Tensor> cpu_mirrored(const Call& call);

// One line of JSON fields for explain(): instruction set, tile shape, workspace bytes.
std::string cpu_describe_plan(const Call& call);
std::string cpu_describe_mirrored(const Call& call);

}  // namespace torchpairwise::ops
