// The arguments of a consumer, as the dispatcher passes them, and the facts that its record states about its results.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/core/SymInt.h>

#include "ops/call.h"

namespace torchpairwise::ops {

struct Arguments {
  const ConsumerInfo* consumer = nullptr;
  std::vector<at::Tensor> operands;
  std::string program;
  std::vector<double> constants;
  at::Tensor values;  // [*batch, M, C]; [*batch, N, C] where dim = -2
  std::int64_t dim = -1;
  std::int64_t k = 0;
  bool largest = false;
  double fill = 0.0;
  double low = 0.0, high = 0.0;
};

// A word of ConsumerInfo::results.
struct ResultInfo {
  std::string sizes;
  bool is_index = false;  // int64
  bool differentiable = true;
};
std::vector<ResultInfo> results_of(const ConsumerInfo& consumer);

// True if the consumer reduces an axis, and so has a `dim`.
bool is_reduction(const ConsumerInfo& consumer);
// True if it picks pairs: its gradients then belong to the picked pairs only.
bool is_selection(const ConsumerInfo& consumer);

// The record with this name; ValueError otherwise.
const ConsumerInfo& find_consumer(const std::string& name);

// Reads the arguments by their names in the schema.
Arguments read_arguments(const ConsumerInfo& consumer, const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// Parses the program and turns it so that the reduction runs over the columns. Nothing is checked: see validate.h.
Call make_call(const Arguments& arguments);

}  // namespace torchpairwise::ops
