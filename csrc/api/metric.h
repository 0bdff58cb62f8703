// From a metric's record to the steps of a program.
#pragma once

#include "api/torchpairwise/torchpairwise.h"

namespace torchpairwise::ops {

// `columns` may be the same tensor as `rows`; both have the dtype of the computation.
std::vector<ProgramStep> lower_metric(const at::Tensor& rows, const at::Tensor& columns, const std::string& metric, const Options& options);

// The signature of a node (expr/concept.h); ValueError that names the nearest one if there is none.
std::string node_signature(const std::string& name);

// "a, b, c".
std::string listed(const std::vector<std::string>& names);

// ". Did you mean 'a'?", or nothing where no known name is near.
std::string suggestion(const std::string& name, const std::vector<std::string>& known);

}  // namespace torchpairwise::ops
