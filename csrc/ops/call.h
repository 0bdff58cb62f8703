// One consumer call, as the implementations receive it: validated, parsed, and oriented so that the reduction runs over the columns.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "consumer/info.h"
#include "expr/program.h"

namespace torchpairwise {

struct Call {
  const ConsumerInfo* consumer = nullptr;
  std::shared_ptr<const Program> program;  // transposed already where the caller reduces over rows (dim = -2)
  std::vector<at::Tensor> operands;        // one a slot
  std::vector<double> constants;
  at::Tensor values;  // [*batch, M, C]; undefined unless the consumer takes values
  std::int64_t k = 0;
  bool largest = false;
  double fill = 0.0;
  double low = 0.0, high = 0.0;
};

}  // namespace torchpairwise
