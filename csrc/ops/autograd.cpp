// Derivatives of the consumers.
//
// First order: one Function for all of them, whose backward calls the operation `replay`. Second order: another Function around `replay`,
// whose own backward records tensor operations (aten::differentiable) for a block of rows after the other. Where a third order may follow
// the record must stay, and the block is the whole matrix. Forward mode and the transforms of torch.func compose the call from the same
// operations.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/aten.h"
#include "ops/validate.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Autocast must not choose the dtype of the products inside.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

bool any_requires_grad(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return x.defined() && x.requires_grad(); });
}

// A transform of torch.func is active: it keeps its dispatch keys included for as long as it stands on the stack of transforms.
bool in_transform() {
  const c10::DispatchKeySet transforms({c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(transforms);
}

bool must_compose(const std::vector<Tensor>& inputs) {
  return in_transform() || torch::autograd::isFwGradDefinedTensorList(at::TensorList(inputs));
}

void save_numbers(AutogradContext* ctx, const Arguments& arguments) {
  ctx->saved_data["consumer"] = std::string(arguments.consumer->name);
  ctx->saved_data["program"] = arguments.program;
  ctx->saved_data["constants"] = arguments.constants;
  ctx->saved_data["dim"] = arguments.dim;
  ctx->saved_data["k"] = arguments.k;
  ctx->saved_data["largest"] = arguments.largest;
}

Arguments restore_numbers(AutogradContext* ctx) {
  Arguments out;
  out.consumer = &find_consumer(ctx->saved_data["consumer"].toStringRef());
  out.program = ctx->saved_data["program"].toStringRef();
  out.constants = ctx->saved_data["constants"].toDoubleVector();
  out.dim = ctx->saved_data["dim"].toInt();
  out.k = ctx->saved_data["k"].toInt();
  out.largest = ctx->saved_data["largest"].toBool();
  return out;
}

// The inverse of inputs_of().
void set_inputs(Arguments& arguments, variable_list inputs) {
  if (arguments.consumer->takes_values) {
    arguments.values = inputs.back();
    inputs.pop_back();
  }
  arguments.operands = std::move(inputs);
}

struct Differentiable : torch::autograd::Function<Differentiable> {
  static constexpr bool is_traceable = true;

  // `inputs` repeats the tensors of the stack: a list of another type than at::TensorList would leave the graph silently.
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, const Arguments& arguments, const c10::OperatorHandle& op,
                               torch::jit::Stack* stack) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(stack);
    }
    variable_list results, saved(inputs.begin(), inputs.end());
    for (const c10::IValue& result : *stack) results.push_back(result.toTensor());
    for (const char* digit = arguments.consumer->saved; *digit != '\0'; ++digit) saved.push_back(results[*digit - '0']);
    ctx->save_for_backward(std::move(saved));
    ctx->set_materialize_grads(false);
    save_numbers(ctx, arguments);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    ReplayArguments arguments;
    arguments.forward = restore_numbers(ctx);
    variable_list saved = ctx->get_saved_variables();
    const std::string numbers = arguments.forward.consumer->saved;
    const std::vector<ResultInfo> results = results_of(*arguments.forward.consumer);
    arguments.saved.resize(results.size());
    for (std::size_t n = numbers.size(); n-- > 0; saved.pop_back()) arguments.saved[numbers[n] - '0'] = saved.back();
    const std::size_t n_inputs = saved.size();
    set_inputs(arguments.forward, std::move(saved));

    constexpr std::size_t kOtherArguments = 3;  // of forward(); they have no gradient
    variable_list out(n_inputs + kOtherArguments);
    bool any = false;
    for (std::size_t n = 0; n < results.size(); ++n) {
      arguments.gradients.push_back(results[n].differentiable ? gradients[n] : Tensor());
      any |= arguments.gradients[n].defined();
    }
    if (!any) return out;
    for (std::size_t n = 0; n < n_inputs; ++n) arguments.needs.push_back(ctx->needs_input_grad(n));
    const std::vector<Tensor> needed = call_replay(arguments);
    for (std::size_t n = 0, next = 0; n < n_inputs; ++n)
      if (arguments.needs[n]) out[n] = needed[next++];
    return out;
  }
};

void push_results(const ConsumerInfo& info, torch::jit::Stack* stack, const std::vector<Tensor>& results) {
  const std::vector<ResultInfo> facts = results_of(info);
  for (std::size_t n = 0; n < results.size(); ++n) torch::jit::push(*stack, facts[n].differentiable ? results[n] : results[n].detach());
}

class ConsumerAutograd : public c10::OperatorKernel {
 public:
  explicit ConsumerAutograd(const ConsumerInfo& info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Arguments arguments = read_arguments(info_, op.schema(), *stack);
    const std::vector<Tensor> inputs = inputs_of(arguments);
    if (must_compose(inputs)) {
      validate(arguments);
      const NoAutocast guard(c10::autocast_dispatch_keyset);
      torch::jit::drop(*stack, op.schema().arguments().size());
      push_results(info_, stack, aten::differentiable(make_call(arguments)));
    } else if (at::GradMode::is_enabled() && any_requires_grad(inputs)) {
      torch::jit::Stack inner = torch::jit::pop(*stack, op.schema().arguments().size());
      push_results(info_, stack, Differentiable::apply(at::TensorList(inputs), arguments, op, &inner));
    } else {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(stack);
    }
  }

 private:
  const ConsumerInfo& info_;
};

// A tensor of its own that requires gradients. One tensor may stand in two places of a call, or be computed from another one: their
// gradients must not be counted twice. With `connected`, gradients flow on to `x`.
Tensor own(const Tensor& x, bool connected) { return connected && x.requires_grad() ? x.view_as(x) : x.detach().requires_grad_(); }

// The part of a result's gradient that belongs to some rows.
Tensor rows_of(const Tensor& gradient, const Call& call, std::size_t n, const aten::RowRange& rows) {
  if (!gradient.defined() || rows.length < 0) return gradient;
  const std::size_t n_core = results_of(*call.consumer)[n].sizes.size();
  return gradient.narrow(gradient.dim() - static_cast<std::int64_t>(n_core), rows.begin, rows.length);
}

// First-order gradients with respect to `needed`, which are tensors of the call, of the loss of some rows, from recorded operations;
// undefined where there is none.
variable_list recorded_gradients(const Call& call, const aten::RowRange& rows, const variable_list& needed,
                                 const variable_list& gradients) {
  const std::vector<Tensor> results = aten::differentiable(call, rows);
  variable_list outputs, given;
  for (std::size_t n = 0; n < results.size(); ++n) {
    if (!gradients[n].defined() || !results[n].requires_grad()) continue;
    outputs.push_back(results[n]);
    given.push_back(rows_of(gradients[n], call, n, rows));
  }
  return outputs.empty() ? variable_list(needed.size()) : torch::autograd::grad(outputs, needed, given, true, true, true);
}

struct DifferentiableReplay : torch::autograd::Function<DifferentiableReplay> {
  static constexpr bool is_traceable = true;

  // `tensors` are the inputs of the consumer and then those gradients of its results that are defined. The saved results need no gradient
  // of their own: backward() computes them again from the inputs.
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors, const ReplayArguments& arguments) {
    ctx->save_for_backward(variable_list(tensors.begin(), tensors.end()));
    ctx->set_materialize_grads(false);
    save_numbers(ctx, arguments.forward);
    c10::List<bool> needs, given;
    for (const bool need : arguments.needs) needs.push_back(need);
    for (const Tensor& gradient : arguments.gradients) given.push_back(gradient.defined());
    ctx->saved_data["needs"] = needs;
    ctx->saved_data["given"] = given;
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_replay(arguments);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& cotangents) {
    const bool connected = at::GradMode::is_enabled();
    const at::AutoGradMode recording(true);
    const std::vector<bool> needs = bools(ctx->saved_data["needs"]), given = bools(ctx->saved_data["given"]);
    variable_list tensors = ctx->get_saved_variables(), wanted, needed, gradients;
    constexpr std::size_t kOtherArguments = 1;
    variable_list out(tensors.size() + kOtherArguments);
    for (std::size_t n = 0; n < tensors.size(); ++n) {
      const bool is_wanted = ctx->needs_input_grad(n), is_needed = n < needs.size() && needs[n];
      if (is_wanted || is_needed) tensors[n] = own(tensors[n], connected);
      if (is_wanted) wanted.push_back(tensors[n]);
      if (is_needed) needed.push_back(tensors[n]);
    }
    std::size_t next = needs.size();
    for (const bool is_given : given) gradients.push_back(is_given ? tensors[next++] : Tensor());
    Arguments arguments = restore_numbers(ctx);
    set_inputs(arguments, variable_list(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(needs.size())));

    const NoAutocast guard(c10::autocast_dispatch_keyset);
    const Call call = make_call(arguments);
    const bool whole = connected || is_traced(tensors);
    const Index n_rows = whole ? -1 : rows_of_results(arguments), block = whole ? -1 : aten::differentiable_rows(call);
    variable_list second(wanted.size());
    for (Index begin = 0; begin == 0 || begin < n_rows; begin += block) {
      const aten::RowRange rows{begin, block < 0 || block >= n_rows ? -1 : std::min(block, n_rows - begin)};
      const variable_list found = of_rows(call, rows, needed, wanted, gradients, cotangents, connected);
      for (std::size_t n = 0; n < wanted.size(); ++n)
        if (found[n].defined()) second[n] = second[n].defined() ? second[n].add(found[n]) : found[n];
      if (rows.length < 0) break;
    }
    for (std::size_t n = 0, place = 0; n < tensors.size(); ++n)
      if (ctx->needs_input_grad(n)) out[n] = second[place++];
    return out;
  }

 private:
  // Second-order gradients with respect to `wanted` of the loss of some rows.
  static variable_list of_rows(const Call& call, const aten::RowRange& rows, const variable_list& needed, const variable_list& wanted,
                               const variable_list& gradients, const variable_list& cotangents, bool connected) {
    const variable_list first = recorded_gradients(call, rows, needed, gradients);
    variable_list outputs, incoming;
    for (std::size_t n = 0; n < first.size(); ++n) {
      if (!cotangents[n].defined() || !first[n].defined() || !first[n].requires_grad()) continue;
      outputs.push_back(first[n]);
      incoming.push_back(cotangents[n]);
    }
    if (outputs.empty()) return variable_list(wanted.size());
    return torch::autograd::grad(outputs, wanted, incoming, connected, connected, true);
  }

  // A tracer's tensors: their sizes may be symbols, and a loop would be written out.
  static bool is_traced(const variable_list& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return x.unsafeGetTensorImpl()->is_python_dispatch(); });
  }

  static Index rows_of_results(const Arguments& arguments) {
    const Sizes sizes = validate(arguments);
    return (arguments.dim == -2 ? sizes.n_columns : sizes.n_rows).expect_int();
  }

  static std::vector<bool> bools(const c10::IValue& list) {
    const c10::List<bool> values = list.toBoolList();
    return {values.begin(), values.end()};
  }
};

void replay_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const ReplayArguments arguments = read_replay(op.schema(), *stack);
  std::vector<Tensor> tensors = inputs_of(arguments.forward);
  tensors.insert(tensors.end(), arguments.gradients.begin(), arguments.gradients.end());
  TORCH_CHECK_NOT_IMPLEMENTED(!must_compose(tensors), "torchpairwise::replay (the backward of ", arguments.forward.consumer->name,
                              ") cannot run under torch.func or forward-mode transforms; apply the transform to the whole function");
  if (at::GradMode::is_enabled() && any_requires_grad(tensors)) {
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), [](const Tensor& x) { return !x.defined(); }), tensors.end());
    torch::jit::drop(*stack, op.schema().arguments().size());
    torch::jit::push(*stack, DifferentiableReplay::apply(at::TensorList(tensors), arguments));
  } else {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
  }
}

// torch.vmap: the composed operations have batching rules of their own.
class ConsumerBatched : public c10::OperatorKernel {
 public:
  explicit ConsumerBatched(const ConsumerInfo& info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Arguments arguments = read_arguments(info_, op.schema(), *stack);
    validate(arguments);
    const NoAutocast guard(c10::autocast_dispatch_keyset);
    torch::jit::drop(*stack, op.schema().arguments().size());
    for (const Tensor& result : aten::differentiable(make_call(arguments))) torch::jit::push(*stack, result);
  }

 private:
  const ConsumerInfo& info_;
};

void replay_batched(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "torchpairwise::replay (the backward of a consumer) has no batching rule: torch.vmap over a backward "
      "pass, as is_grads_batched=True does, is not supported. Use torch.func.vmap(torch.func.grad(...)), or a loop");
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, Autograd, m) {
  for (const ConsumerInfo* info : kConsumers)
    m.impl(info->name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ConsumerAutograd>(*info)));
  m.impl("replay", torch::CppFunction::makeFromBoxedFunction<&replay_autograd>());
}

TORCH_LIBRARY_IMPL(torchpairwise, Batched, m) { m.impl("replay", torch::CppFunction::makeFromBoxedFunction<&replay_batched>()); }

TORCH_LIBRARY_IMPL(torchpairwise, FuncTorchBatched, m) {
  for (const ConsumerInfo* info : kConsumers)
    m.impl(info->name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ConsumerBatched>(*info)));
  m.impl("replay", torch::CppFunction::makeFromBoxedFunction<&replay_batched>());
}

}  // namespace torchpairwise::ops
