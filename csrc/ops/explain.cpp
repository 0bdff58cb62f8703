// explain(): which path will run a call and what it costs, without running it.
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "aten/aten.h"
#include "ops/choice.h"
#include "ops/cpu.h"
#include "ops/json.h"
#include "ops/sweep.h"
#include "ops/validate.h"
#include "plan/plan.h"
#include "source/list.h"

namespace torchpairwise::ops {
namespace {

// Operations of one pair, counted as in a textbook: 2 a feature for a product, 3 for a difference, 1 a node, 1 for the reduction and 2 a
// value column.
std::int64_t flops_of_pair(const Call& call) {
  std::int64_t flops = 1;
  for (const Step& step : call.program->steps()) {
    if (step.kind == StepKind::kNode || step.kind == StepKind::kJoin) ++flops;
    if (step.kind != StepKind::kSource) continue;
    Form form = Form::kProduct;
    SourceList::visit(step.id, [&]<class Source>() { form = Source::kInfo.form; });
    flops += (form == Form::kProduct ? 2 : 3) * call.operands[step.slot[0]].size(-1);
  }
  return flops + (call.values.defined() ? 2 * call.values.size(-1) : 0);
}

const char* gradient_path(const Call& call, const Choice& choice) {
  if (is_selection(*call.consumer) || std::string(call.consumer->results) == "P") return "gathered pairs";
  return choice.native && is_reduction(*call.consumer) ? "native" : "tiles";
}

// Values for a caller who did not name any: one column, without memory.
at::Tensor one_column(const Arguments& arguments) {
  const Role role = arguments.dim == -2 ? Role::kRowFeatures : Role::kColumnFeatures;
  for (const Use& use : Program::parse(arguments.program)->uses()) {
    if (use.role != role) continue;
    const at::Tensor& features = arguments.operands.at(use.slot);
    return at::zeros({}, features.options()).expand({features.size(-2), 1});
  }
  return {};
}

std::string explain(const std::vector<at::Tensor>& operands, std::string program, std::vector<double> constants, std::string consumer,
                    const std::optional<at::Tensor>& values, std::int64_t dim, std::int64_t k) {
  Arguments arguments;
  arguments.consumer = &find_consumer(consumer);
  arguments.operands = operands;
  arguments.program = std::move(program);
  arguments.constants = std::move(constants);
  arguments.dim = dim;
  arguments.k = k;
  arguments.high = 1.0;  // of a histogram, whose limits change nothing here
  if (arguments.consumer->takes_values) {
    arguments.values = values.value_or(at::Tensor());
    if (!arguments.values.defined()) arguments.values = one_column(arguments);
  }
  const Sizes sizes = validate(arguments);
  const Call call = make_call(arguments);
  const Choice choice = preferred(call);

  const bool mirrored = choice.native && mirror_pays(call);
  std::int64_t pairs =
      mirrored ? plan::mirrored_pairs(sizes.n_rows.expect_int()) : sizes.n_rows.expect_int() * sizes.n_columns.expect_int();
  for (const c10::SymInt& size : sizes.batch) pairs *= size.expect_int();
  std::vector<std::string> reasons;
  for (const std::string& reason : choice.reasons) reasons.push_back(json::quote(reason));
  return json::Object()
      .add("consumer", consumer)
      .add("path", choice.native ? "native" : "tiles")
      .add_written("reasons", json::list_of(reasons))
      .add("precision", call.program->choices().fast ? "fast" : "exact")
      .add_fields(mirrored ? cpu_describe_mirrored(call) : (choice.native ? cpu_describe_plan(call) : aten::describe_plan(call)))
      .add("pairs", pairs)
      .add("flops", pairs * flops_of_pair(call))
      .add("gradient", gradient_path(call, choice))
      .text();
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, CompositeImplicitAutograd, m) { m.impl("explain", &explain); }

}  // namespace torchpairwise::ops
