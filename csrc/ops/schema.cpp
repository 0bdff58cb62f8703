// The schemas. Those of the consumers are put together from their records.
#include <torch/library.h>

#include "consumer/info.h"

TORCH_LIBRARY(torchpairwise, m) {
  for (const torchpairwise::ConsumerInfo* info : torchpairwise::kConsumers) {
    std::string schema = std::string(info->name) + "(Tensor[] operands, str program, float[] constants";
    if (*info->arguments != '\0') schema += std::string(", ") + info->arguments;
    schema += std::string(") -> ") + info->returns;
    m.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  }
  m.def(
      "replay(str consumer, Tensor?[] gradients, Tensor[] operands, str program, float[] constants, Tensor? values, Tensor?[] saved, "
      "int dim, int k, bool largest, bool[] needs) -> Tensor[]",
      {at::Tag::pt2_compliant_tag});
  // Several consumers in one pass; the results of all of them in order.
  m.def(
      "sweep(Tensor[] operands, str program, float[] constants, str[] consumers, int[] dims, Tensor?[] values, int[] k, bool[] largest) -> "
      "Tensor[]",
      {at::Tag::pt2_compliant_tag});
  m.def("explain(Tensor[] operands, str program, float[] constants, str consumer, Tensor? values, int dim, int k) -> str");
  m.def("describe() -> str");
  m.def("evaluated_pairs() -> int");
  // A tile of a Python comparison; Python provides the implementation.
  m.def("custom_tile(str key, Tensor rows, Tensor columns, Tensor[] parameters) -> Tensor");
}
