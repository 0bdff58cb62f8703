// The kernels of every device: check the arguments, ask which path may run, and run it.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "aten/aten.h"
#include "core/counter.h"
#include "ops/choice.h"
#include "ops/cpu.h"
#include "ops/sweep.h"
#include "ops/validate.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;

// Autocast must not choose the dtype of the products inside: operands come in the dtype of the computation.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

class ConsumerKernel : public c10::OperatorKernel {
 public:
  explicit ConsumerKernel(const ConsumerInfo& info) : info_(info) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Arguments arguments = read_arguments(info_, op.schema(), *stack);
    validate(arguments);
    const NoAutocast guard(c10::autocast_dispatch_keyset);
    const Call call = make_call(arguments);
    const Choice choice = choose(call);
    const bool mirrored = choice.native && mirror_pays(call);
    const std::vector<Tensor> results = mirrored ? cpu_mirrored(call) : (choice.native ? cpu_forward(call) : aten::forward(call));
    torch::jit::drop(*stack, op.schema().arguments().size());
    for (const Tensor& result : results) torch::jit::push(*stack, result);
  }

 private:
  const ConsumerInfo& info_;
};

void replay_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const ReplayArguments arguments = read_replay(op.schema(), *stack);
  validate(arguments);
  const NoAutocast guard(c10::autocast_dispatch_keyset);
  const Call call = make_call(arguments.forward);
  const bool native = choose(call).native && is_reduction(*call.consumer) && !is_selection(*call.consumer);
  const auto path = native ? cpu_replay : aten::replay;
  std::vector<Tensor> out = path(call, arguments.gradients, arguments.saved, arguments.needs);
  for (Tensor& gradient : out) gradient = gradient.contiguous();
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::move(out));
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, CompositeExplicitAutograd, m) {
  for (const ConsumerInfo* info : kConsumers)
    m.impl(info->name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ConsumerKernel>(*info)));
  m.impl("replay", torch::CppFunction::makeFromBoxedFunction<&replay_kernel>());
}

TORCH_LIBRARY_IMPL(torchpairwise, CompositeImplicitAutograd, m) {
  m.impl("evaluated_pairs", []() { return evaluated_pairs().load(); });
}

}  // namespace torchpairwise::ops
