#include "ops/choice.h"

#include "ops/arguments.h"
#include "ops/cpu.h"

namespace torchpairwise::ops {

Choice preferred(const Call& call) {
  Choice choice;
  choice.reasons = cpu_why_not(call);
  choice.native = choice.reasons.empty();
  return choice;
}

Choice choose(const Call& call) {
  const Choice choice = preferred(call);
  // diagonal and dense reduce nothing: there is one way to run them, which no choice changes.
  const bool asked = call.program->choices().backend == Backend::kNative && is_reduction(*call.consumer);
  if (!asked || choice.native) return choice;
  std::string text;
  for (const std::string& reason : choice.reasons) text += "\n  - " + reason;
  TORCH_CHECK_VALUE(false, "backend=\"native\" was asked for, but ", call.consumer->name, " cannot run on the native kernels:", text,
                    "\nUse backend=\"auto\" to let it run on tiles of tensors.");
}

}  // namespace torchpairwise::ops
