// Schema, shapes, dispatch and derivatives of `sweep`. Where it cannot run in one pass, each item runs as a consumer of its own.
#include "ops/sweep.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <algorithm>

#include "aten/transforms.h"
#include "ops/choice.h"
#include "ops/cpu.h"
#include "ops/validate.h"

namespace torchpairwise::ops {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SweepArguments read_sweep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::size_t n_arguments = schema.arguments().size();
  const auto argument = [&](std::size_t n) -> const c10::IValue& { return torch::jit::peek(stack, n, n_arguments); };
  Arguments shared;
  shared.operands = argument(0).toTensorVector();
  shared.program = argument(1).toStringRef();
  shared.constants = argument(2).toDoubleVector();
  const auto consumers = argument(3).toListRef();
  const std::vector<std::int64_t> dims = argument(4).toIntVector(), k = argument(6).toIntVector();
  const auto values = argument(5).toOptionalTensorVector();
  const c10::List<bool> largest = argument(7).toBoolList();
  TORCH_CHECK_VALUE(!consumers.empty() && dims.size() == consumers.size() && values.size() == consumers.size() &&
                        k.size() == consumers.size() && largest.size() == consumers.size(),
                    "sweep needs one dim, values, k and largest for each of its consumers, and at least one consumer");
  SweepArguments out;
  for (std::size_t n = 0; n < consumers.size(); ++n) {
    Arguments item = shared;
    item.consumer = &find_consumer(consumers[n].toStringRef());
    TORCH_CHECK_VALUE(is_reduction(*item.consumer), "sweep takes reductions, not ", item.consumer->name);
    item.dim = dims[n];
    item.k = k[n];
    item.largest = largest.get(n);
    item.values = values[n].value_or(Tensor());
    out.items.push_back(std::move(item));
  }
  return out;
}

namespace {

// A call of an item's own consumer.
std::vector<Tensor> call_consumer(const Arguments& item) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("torchpairwise::") + item.consumer->name).c_str(), "");
  torch::jit::Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const std::string& name = argument.name();
    if (name == "operands")
      stack.emplace_back(item.operands);
    else if (name == "program")
      stack.emplace_back(item.program);
    else if (name == "constants")
      stack.emplace_back(item.constants);
    else if (name == "values")
      stack.emplace_back(item.values);
    else if (name == "dim")
      stack.emplace_back(item.dim);
    else if (name == "k")
      stack.emplace_back(item.k);
    else if (name == "largest")
      stack.emplace_back(item.largest);
    else
      TORCH_CHECK_VALUE(false, "sweep does not take ", item.consumer->name, ", which needs ", name);
  }
  op.callBoxed(stack);
  std::vector<Tensor> out;
  for (const c10::IValue& result : stack) out.push_back(result.toTensor());
  return out;
}

std::vector<Tensor> one_by_one(const SweepArguments& arguments) {
  std::vector<Tensor> out;
  for (const Arguments& item : arguments.items) {
    const std::vector<Tensor> results = call_consumer(item);
    out.insert(out.end(), results.begin(), results.end());
  }
  return out;
}

// The items as calls in the orientation of the matrix; empty if they cannot run in one native pass.
std::vector<Call> native_calls(const SweepArguments& arguments) {
  std::vector<Call> calls;
  int sides[2] = {0, 0};
  for (const Arguments& item : arguments.items) {
    Arguments upright = item;
    upright.dim = -1;
    Call call = make_call(upright);
    if (!choose(make_call(item)).native || ++sides[item.dim == -2] > kMaxSides) return {};
    calls.push_back(std::move(call));
  }
  return calls;
}

void sweep_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const SweepArguments arguments = read_sweep(op.schema(), *stack);
  for (const Arguments& item : arguments.items) validate(item);
  torch::jit::drop(*stack, op.schema().arguments().size());
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::autocast_dispatch_keyset);
  const std::vector<Call> calls = native_calls(arguments);
  std::vector<std::int64_t> dims;
  for (const Arguments& item : arguments.items) dims.push_back(item.dim);
  torch::jit::push(*stack, calls.empty() ? one_by_one(arguments) : cpu_sweep(calls, dims));
}

void sweep_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const SweepArguments arguments = read_sweep(op.schema(), *stack);
  torch::jit::drop(*stack, op.schema().arguments().size());
  std::vector<Tensor> out;
  for (const Arguments& item : arguments.items) {
    const std::vector<std::vector<c10::SymInt>> sizes = result_sizes(item, validate(item));
    const std::vector<ResultInfo> results = results_of(*item.consumer);
    const at::TensorOptions options = item.operands[0].options();
    for (std::size_t n = 0; n < results.size(); ++n)
      out.push_back(at::empty_symint(sizes[n], results[n].is_index ? options.dtype(at::kLong) : options));
  }
  torch::jit::push(*stack, std::move(out));
}

// Operands once, then the values of the items that have them.
variable_list inputs_of(const SweepArguments& arguments) {
  variable_list out = arguments.items[0].operands;
  for (const Arguments& item : arguments.items)
    if (item.values.defined()) out.push_back(item.values);
  return out;
}

// The items travel from forward to backward by the node itself; tensors are saved apart from them.
struct SweepHolder : torch::CustomClassHolder {
  SweepArguments arguments;
};

struct DifferentiableSweep : torch::autograd::Function<DifferentiableSweep> {
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, const SweepArguments& arguments, const c10::OperatorHandle& op,
                               torch::jit::Stack* stack) {
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      op.callBoxed(stack);
    }
    const variable_list results = torch::jit::pop(*stack).toTensorVector();
    auto holder = c10::make_intrusive<SweepHolder>();
    holder->arguments = arguments;
    for (Arguments& item : holder->arguments.items) {
      item.operands.clear();
      item.values = Tensor();
    }
    variable_list saved(inputs.begin(), inputs.end());
    variable_list not_differentiable;
    std::size_t place = 0;
    for (const Arguments& item : arguments.items) {
      const std::vector<ResultInfo> facts = results_of(*item.consumer);
      for (std::size_t n = 0; n < facts.size(); ++n, ++place) {
        saved.push_back(results[place]);
        if (!facts[n].differentiable) not_differentiable.push_back(results[place]);
      }
    }
    ctx->save_for_backward(std::move(saved));
    ctx->mark_non_differentiable(not_differentiable);
    ctx->set_materialize_grads(false);
    ctx->saved_data["items"] = c10::IValue::make_capsule(holder);
    ctx->saved_data["n_operands"] = static_cast<std::int64_t>(arguments.items[0].operands.size());
    c10::List<bool> has_values;
    for (const Arguments& item : arguments.items) has_values.push_back(item.values.defined());
    ctx->saved_data["has_values"] = has_values;
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<SweepHolder>(ctx->saved_data["items"].toCapsule());
    const auto n_operands = static_cast<std::size_t>(ctx->saved_data["n_operands"].toInt());
    const c10::List<bool> has_values = ctx->saved_data["has_values"].toBoolList();
    const variable_list saved = ctx->get_saved_variables();
    std::size_t n_inputs = n_operands;
    for (const bool has : has_values) n_inputs += has;
    constexpr std::size_t kOtherArguments = 3;
    variable_list out(n_inputs + kOtherArguments);
    std::size_t result = n_inputs, values = n_operands, gradient = 0;
    for (std::size_t i = 0; i < holder->arguments.items.size(); ++i) {
      ReplayArguments replay;
      replay.forward = holder->arguments.items[i];
      replay.forward.operands.assign(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(n_operands));
      const std::size_t own = values;
      if (has_values.get(i)) replay.forward.values = saved[values++];
      const std::string numbers = replay.forward.consumer->saved;
      const std::vector<ResultInfo> facts = results_of(*replay.forward.consumer);
      bool any = false;
      for (std::size_t n = 0; n < facts.size(); ++n, ++result, ++gradient) {
        replay.saved.push_back(numbers.find(static_cast<char>('0' + n)) == std::string::npos ? Tensor() : saved[result]);
        replay.gradients.push_back(facts[n].differentiable ? gradients[gradient] : Tensor());
        any |= replay.gradients.back().defined();
      }
      if (!any) continue;
      std::vector<std::size_t> places;
      for (std::size_t n = 0; n < n_operands; ++n) places.push_back(n);
      if (has_values.get(i)) places.push_back(own);
      for (const std::size_t n : places) replay.needs.push_back(ctx->needs_input_grad(n));
      const std::vector<Tensor> found = call_replay(replay);
      for (std::size_t n = 0, next = 0; n < places.size(); ++n) {
        if (!replay.needs[n]) continue;
        Tensor& to = out[places[n]];
        to = to.defined() ? to.add(found[next]) : found[next];
        ++next;
      }
    }
    return out;
  }
};

void sweep_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const SweepArguments arguments = read_sweep(op.schema(), *stack);
  const variable_list inputs = inputs_of(arguments);
  const bool composed = aten::in_transform() || torch::autograd::isFwGradDefinedTensorList(at::TensorList(inputs));
  const bool records =
      at::GradMode::is_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); });
  if (composed) {
    torch::jit::drop(*stack, op.schema().arguments().size());
    torch::jit::push(*stack, one_by_one(arguments));
  } else if (records) {
    torch::jit::Stack inner = torch::jit::pop(*stack, op.schema().arguments().size());
    torch::jit::push(*stack, DifferentiableSweep::apply(at::TensorList(inputs), arguments, op, &inner));
  } else {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
  }
}

void sweep_batched(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const SweepArguments arguments = read_sweep(op.schema(), *stack);
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, one_by_one(arguments));
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, CompositeExplicitAutograd, m) {
  m.impl("sweep", torch::CppFunction::makeFromBoxedFunction<&sweep_kernel>());
}
TORCH_LIBRARY_IMPL(torchpairwise, Meta, m) { m.impl("sweep", torch::CppFunction::makeFromBoxedFunction<&sweep_meta>()); }
TORCH_LIBRARY_IMPL(torchpairwise, Autograd, m) { m.impl("sweep", torch::CppFunction::makeFromBoxedFunction<&sweep_autograd>()); }
TORCH_LIBRARY_IMPL(torchpairwise, FuncTorchBatched, m) { m.impl("sweep", torch::CppFunction::makeFromBoxedFunction<&sweep_batched>()); }

}  // namespace torchpairwise::ops
