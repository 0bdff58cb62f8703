// Meta kernels: the shapes of the results, with symbolic sizes.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ops/validate.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;

class ConsumerMeta : public c10::OperatorKernel {
 public:
  explicit ConsumerMeta(const ConsumerInfo& info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Arguments arguments = read_arguments(info_, op.schema(), *stack);
    const std::vector<std::vector<c10::SymInt>> sizes = result_sizes(arguments, validate(arguments));
    torch::jit::drop(*stack, op.schema().arguments().size());
    const at::TensorOptions options = arguments.operands[0].options();
    const std::vector<ResultInfo> results = results_of(info_);
    for (std::size_t n = 0; n < results.size(); ++n)
      torch::jit::push(*stack, at::empty_symint(sizes[n], results[n].is_index ? options.dtype(at::kLong) : options));
  }

 private:
  const ConsumerInfo& info_;
};

void replay_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const ReplayArguments arguments = read_replay(op.schema(), *stack);
  validate(arguments);
  torch::jit::drop(*stack, op.schema().arguments().size());
  const std::vector<Tensor> inputs = inputs_of(arguments.forward);
  std::vector<Tensor> out;
  for (std::size_t n = 0; n < inputs.size(); ++n)
    if (arguments.needs[n]) out.push_back(at::empty_symint(inputs[n].sym_sizes(), inputs[n].options()));
  torch::jit::push(*stack, std::move(out));
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, Meta, m) {
  for (const ConsumerInfo* info : kConsumers)
    m.impl(info->name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ConsumerMeta>(*info)));
  m.impl("replay", torch::CppFunction::makeFromBoxedFunction<&replay_meta>());
}

}  // namespace torchpairwise::ops
