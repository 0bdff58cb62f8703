#include "aten/consumers.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <cstring>

#include "aten/histogram.h"
#include "aten/selections.h"
#include "aten/softmax.h"
#include "aten/sources.h"
#include "aten/sums.h"

namespace torchpairwise::aten {
namespace {

template <class Reduction>
constexpr ConsumerEntry streamed(int logsumexp = -1) {
  return {Reduction::kInfo.name, Reduction::neutral,   Reduction::reduce, Reduction::merge,
          Reduction::finish,     Reduction::cotangent, Reduction::whole,  logsumexp};
}

// Gradients of selections go to the selected pairs alone: pairs.h.
constexpr ConsumerEntry selection(const ConsumerInfo& info) {
  return {info.name, Topk::neutral, Topk::reduce, Topk::merge, Topk::finish, nullptr, nullptr};
}

constexpr ConsumerEntry kEntries[] = {streamed<Sum>(),     streamed<Mean>(),           streamed<LogSumExp>(0),
                                      streamed<Matmul>(),  streamed<SoftmaxMatmul>(1), selection(kMinInfo),
                                      selection(kMaxInfo), selection(kTopkInfo),       streamed<Histogram>()};

}  // namespace

Tensor number_like(double value, const Tensor& like) { return at::scalar_tensor(value, like.options()); }

ScoreTile::ScoreTile(const Call& call, const Tensor& scores, const Tensor& keep) : call(call), scores(scores), keep(keep) {
  // Labels may have batch dimensions that no feature has.
  if (keep.defined()) this->scores = scores.expand(at::infer_size(scores.sizes(), keep.sizes()));
}

Tensor ScoreTile::filled(double value) const { return keep.defined() ? at::where(keep, scores, number_like(value, scores)) : scores; }

const ConsumerEntry& consumer_entry(const Call& call) {
  for (const ConsumerEntry& entry : kEntries)
    if (std::strcmp(entry.name, call.consumer->name) == 0) return entry;
  TORCH_INTERNAL_ASSERT(false, "'", call.consumer->name, "' has no entry in aten/consumers.cpp");
}

bool is(const Call& call, const ConsumerInfo& info) { return std::strcmp(call.consumer->name, info.name) == 0; }

bool is_selection(const Call& call) { return std::strchr(call.consumer->results, '#') != nullptr; }

Tensor masked_product(const Tensor& weights, const Tensor& values, const Tensor& keep, bool finite) {
  if (finite || !keep.defined()) return product(weights, values);
  // 0 times a number that is not finite would be NaN: column by column of V, and selected.
  std::vector<Tensor> columns;
  for (Index c = 0; c < values.size(-1); ++c) {
    const Tensor terms = weights * values.select(-1, c).unsqueeze(-2);
    columns.push_back(at::where(keep, terms, number_like(0, terms)).sum(-1));
  }
  return columns.empty() ? product(weights, values) : at::stack(columns, -1);
}

}  // namespace torchpairwise::aten
