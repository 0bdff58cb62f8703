#include "aten/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>

#include "aten/masks.h"
#include "aten/nodes.h"
#include "aten/tables.h"
#include "core/counter.h"
#include "expr/list.h"

namespace torchpairwise::aten {
namespace {

class Evaluator {
 public:
  Evaluator(const Call& call, const Aligned& aligned, const Tensor& keep, const Evaluation& evaluation)
      : call_(call), aligned_(aligned), keep_(keep), evaluation_(evaluation) {
    if (!keep.defined()) evaluation_.guard = Guard::kNone;
  }

  Tensor run() {
    evaluated_pairs() += aligned_.j.numel() / std::max<Index>(1, aligned_.j.size(-2)) * aligned_.i.size(-2);
    for (const Step& step : call_.program->steps()) {
      switch (step.kind) {
        case StepKind::kSource:
          stack_.push_back(source(step));
          break;
        case StepKind::kCustom:
          stack_.push_back(custom(step));
          break;
        case StepKind::kTable:
          stack_.push_back(table(step));
          break;
        case StepKind::kNode:
          stack_.back() = apply_node(step.id, guarded(stack_.back()), arguments(step));
          break;
        case StepKind::kJoin: {
          const Tensor last = guarded(stack_.back());
          stack_.pop_back();
          stack_.back() = apply_join(step.id, guarded(stack_.back()), last);
          break;
        }
        case StepKind::kSelect: {
          const Tensor last = stack_.back();
          stack_.pop_back();
          stack_.back() = at::where(keep_of(call_, aligned_, step.id), stack_.back(), last);
        }
      }
    }
    return stack_.back();
  }

 private:
  Tensor guarded(const Tensor& scores) const {
    if (evaluation_.guard == Guard::kNone) return scores;
    return at::where(keep_, scores, at::scalar_tensor(1.0, scores.options()));
  }

  Tensor features(const Tensor& x) const {
    if (evaluation_.guard != Guard::kPairs) return x;
    return at::where(keep_.unsqueeze(-1), x, at::scalar_tensor(0.0, x.options()));
  }

  Tensor source(const Step& step) const {
    SourceSettings settings;
    settings.order = evaluation_.order;
    settings.fast = call_.program->choices().fast;
    return apply_source(step.id, features(aligned_.rows[step.slot[0]]), features(aligned_.columns[step.slot[1]]), settings);
  }

  Tensor table(const Step& step) const {
    const Tensor& entries = aligned_.others[step.slot[0]];
    const Tensor index = table_index(call_, aligned_, step);
    const Tensor none = index.lt(0), valid = index.clamp_min(0);
    std::vector<Index> sizes = at::infer_size(entries.sizes().slice(0, entries.dim() - 1), valid.sizes().slice(0, valid.dim() - 2));
    std::vector<Index> index_sizes = sizes, table_sizes = sizes;
    index_sizes.insert(index_sizes.end(), {valid.size(-2), valid.size(-1)});
    table_sizes.insert(table_sizes.end(), {valid.size(-2), entries.size(-1)});
    const Tensor scores = entries.unsqueeze(-2).expand(table_sizes).gather(-1, valid.expand(index_sizes));
    return at::where(none, at::scalar_tensor(0.0, scores.options()), scores);
  }

  // A comparison f takes x [..., r, 1, D] and y [..., 1, c, D] and gives [..., r, c]. Pairs that are not all pairs are batches of one row.
  Tensor custom(const Step& step) const {
    const auto& key = call_.program->custom_keys()[step.id];
    std::vector<Tensor> parameters;
    for (const int slot : call_.program->custom_parameters()[step.id]) parameters.push_back(aligned_.others[slot]);
    Tensor x = features(aligned_.rows[step.slot[0]]), y = features(aligned_.columns[step.slot[1]]);
    std::vector<std::int64_t> sizes = at::infer_size(x.sizes().slice(0, x.dim() - 1), y.sizes().slice(0, y.dim() - 1));
    const bool pairs = !all_pairs(x, y);
    if (pairs && x.size(-2) != 1) {
      x = x.unsqueeze(-2).unsqueeze(-2);
      y = y.unsqueeze(-2).unsqueeze(-2);
    } else if (pairs) {
      x = x.unsqueeze(-3);
      y = y.unsqueeze(-3);
    }
    Tensor scores =
        step.swapped ? call_function(key, y.transpose(-3, -2), x.transpose(-3, -2), parameters).mT() : call_function(key, x, y, parameters);
    if (pairs) scores = x.dim() == static_cast<std::int64_t>(sizes.size()) + 3 ? scores.squeeze(-1).squeeze(-1) : scores.squeeze(-2);
    return scores.to(x.scalar_type()).expand(sizes);
  }

  static Tensor call_function(const std::string& key, const Tensor& x, const Tensor& y, const std::vector<Tensor>& parameters) {
    using Function = Tensor(c10::string_view, const Tensor&, const Tensor&, at::TensorList);
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("torchpairwise::custom_tile", "").typed<Function>();
    const Tensor scores = op.call(key, x, y, parameters);
    const std::int64_t r = x.size(-3), c = y.size(-2), n = scores.dim();
    TORCH_CHECK_VALUE(n >= 2 && (scores.size(-2) == r || scores.size(-2) == 1) && (scores.size(-1) == c || scores.size(-1) == 1),
                      "the comparison returned shape ", scores.sizes(), " for x ", x.sizes(), " and y ", y.sizes(), "; expected [..., ", r,
                      ", ", c, "]: one score for each pair");
    return scores;
  }

  NodeArguments arguments(const Step& step) const {
    NodeArguments out;
    if (step.slot[0] >= 0) {
      const char* signature = "";
      NodeList::visit(step.id, [&]<class Node>() { signature = Node::kInfo.signature; });
      const Side side = *signature == 'r' ? Side::kRows : (*signature == 'c' ? Side::kColumns : Side::kNone);
      out.tensor = aligned_.of(side)[step.slot[0]];
    }
    for (int n = 0; n < 2; ++n)
      if (step.constant[n] >= 0) out.constant[n] = call_.constants[step.constant[n]];
    return out;
  }

  const Call& call_;
  const Aligned& aligned_;
  const Tensor& keep_;
  Evaluation evaluation_;
  std::vector<Tensor> stack_;
};

}  // namespace

Tensor evaluate(const Call& call, const Aligned& aligned, const Tensor& keep, const Evaluation& evaluation) {
  return Evaluator(call, aligned, keep, evaluation).run();
}

}  // namespace torchpairwise::aten
