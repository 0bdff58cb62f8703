// First-order gradients of a consumer, as a call of the dispatcher: its arguments on the stack, and their way in and out.
#pragma once

#include "ops/arguments.h"

namespace torchpairwise::ops {

struct ReplayArguments {
  Arguments forward;
  std::vector<at::Tensor> gradients;  // of the results; undefined where a result got none
  std::vector<at::Tensor> saved;      // results; undefined where ConsumerInfo::saved does not list them
  std::vector<bool> needs;            // of the operands, then of the values where the consumer takes them
};

ReplayArguments read_replay(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// Calls torchpairwise::replay.
std::vector<at::Tensor> call_replay(const ReplayArguments& arguments);

// The tensors that `needs` counts: operands, then values.
std::vector<at::Tensor> inputs_of(const Arguments& arguments);

}  // namespace torchpairwise::ops
