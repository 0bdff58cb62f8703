// Checks of a call, for real tensors and for meta tensors alike. Sizes that are symbols are compared only where a result's shape needs it,
// so that a traced graph stays valid for all sizes; the kernels check them again when they run.
#pragma once

#include "ops/replay.h"

namespace torchpairwise::ops {

// Sizes in the orientation of the program's text.
struct Sizes {
  std::vector<c10::SymInt> batch;
  c10::SymInt n_rows = 0;
  c10::SymInt n_columns = 0;
  c10::SymInt n_values = 0;
};

// Dimensions of an operand that belong to one batch entry; those before them are batch dimensions. -1: the operand has no batch.
int core_dimensions(Role role);

Sizes validate(const Arguments& arguments);

// Sizes of the results, in the order of ConsumerInfo::results.
std::vector<std::vector<c10::SymInt>> result_sizes(const Arguments& arguments, const Sizes& sizes);

// Validates the call that replay differentiates, and the lists that belong to its results and inputs.
Sizes validate(const ReplayArguments& arguments);

}  // namespace torchpairwise::ops
