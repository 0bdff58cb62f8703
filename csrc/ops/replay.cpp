#include "ops/replay.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchpairwise::ops {
namespace {

using at::Tensor;

c10::List<std::optional<Tensor>> optional_list(const std::vector<Tensor>& tensors) {
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& tensor : tensors) list.push_back(tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt);
  return list;
}

std::vector<Tensor> tensors_or_undefined(const c10::IValue& list) {
  std::vector<Tensor> out;
  for (const std::optional<Tensor>& tensor : list.toOptionalTensorVector()) out.push_back(tensor.value_or(Tensor()));
  return out;
}

}  // namespace

ReplayArguments read_replay(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  ReplayArguments out;
  const std::size_t n_arguments = schema.arguments().size();
  for (std::size_t n = 0; n < n_arguments; ++n) {
    const std::string& name = schema.arguments()[n].name();
    const c10::IValue& value = torch::jit::peek(stack, n, n_arguments);
    if (name == "consumer")
      out.forward.consumer = &find_consumer(value.toStringRef());
    else if (name == "gradients")
      out.gradients = tensors_or_undefined(value);
    else if (name == "operands")
      out.forward.operands = value.toTensorVector();
    else if (name == "program")
      out.forward.program = value.toStringRef();
    else if (name == "constants")
      out.forward.constants = value.toDoubleVector();
    else if (name == "values")
      out.forward.values = value.isNone() ? Tensor() : value.toTensor();
    else if (name == "saved")
      out.saved = tensors_or_undefined(value);
    else if (name == "dim")
      out.forward.dim = value.toInt();
    else if (name == "k")
      out.forward.k = value.toInt();
    else if (name == "largest")
      out.forward.largest = value.toBool();
    else if (name == "needs")
      for (const bool need : value.toBoolList()) out.needs.push_back(need);
  }
  return out;
}

std::vector<Tensor> call_replay(const ReplayArguments& arguments) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("torchpairwise::replay", "");
  const Arguments& forward = arguments.forward;
  c10::List<bool> needs;
  for (const bool need : arguments.needs) needs.push_back(need);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::string(forward.consumer->name), optional_list(arguments.gradients), forward.operands, forward.program,
                   forward.constants, forward.values.defined() ? c10::IValue(forward.values) : c10::IValue(),
                   optional_list(arguments.saved), forward.dim, forward.k, forward.largest, needs);
  op.callBoxed(stack);
  return torch::jit::pop(stack).toTensorVector();
}

std::vector<Tensor> inputs_of(const Arguments& arguments) {
  std::vector<Tensor> out = arguments.operands;
  if (arguments.consumer->takes_values) out.push_back(arguments.values);
  return out;
}

}  // namespace torchpairwise::ops
