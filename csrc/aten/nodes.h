// Nodes and joins in tensor operations. Autograd differentiates them, to any order, with the subgradients of design rules: see nodes.cpp.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchpairwise::aten {

using at::Tensor;

// The arguments of a node: a tensor that broadcasts against the scores, or else numbers.
struct NodeArguments {
  Tensor tensor;
  double constant[2] = {0, 0};
};

// `id` counts in NodeList and JoinList.
Tensor apply_node(int id, const Tensor& scores, const NodeArguments& arguments);
Tensor apply_join(int id, const Tensor& first, const Tensor& second);

}  // namespace torchpairwise::aten
