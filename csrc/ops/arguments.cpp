#include "ops/arguments.h"

#include <cstring>
#include <sstream>

namespace torchpairwise::ops {

std::vector<ResultInfo> results_of(const ConsumerInfo& consumer) {
  std::vector<ResultInfo> out;
  std::istringstream words(consumer.results);
  for (std::string word; words >> word;) {
    ResultInfo result;
    result.is_index = word.back() == '#' || word.back() == '%';
    result.differentiable = !result.is_index && word.back() != '!';
    if (!result.differentiable) word.pop_back();
    result.sizes = word;
    out.push_back(result);
  }
  return out;
}

bool is_reduction(const ConsumerInfo& consumer) { return std::strstr(consumer.arguments, "int dim") != nullptr; }

bool is_selection(const ConsumerInfo& consumer) { return std::strchr(consumer.results, '#') != nullptr; }

const ConsumerInfo& find_consumer(const std::string& name) {
  std::string names;
  for (const ConsumerInfo* info : kConsumers) {
    if (name == info->name) return *info;
    names += (names.empty() ? "" : ", ") + std::string(info->name);
  }
  TORCH_CHECK_VALUE(false, "consumer is '", name, "'; expected one of ", names);
}

Arguments read_arguments(const ConsumerInfo& consumer, const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  Arguments out;
  out.consumer = &consumer;
  const std::size_t n_arguments = schema.arguments().size();
  for (std::size_t n = 0; n < n_arguments; ++n) {
    const std::string& name = schema.arguments()[n].name();
    const c10::IValue& value = torch::jit::peek(stack, n, n_arguments);
    if (name == "operands")
      out.operands = value.toTensorVector();
    else if (name == "program")
      out.program = value.toStringRef();
    else if (name == "constants")
      out.constants = value.toDoubleVector();
    else if (name == "values")
      out.values = value.isNone() ? at::Tensor() : value.toTensor();
    else if (name == "dim")
      out.dim = value.toInt();
    else if (name == "k")
      out.k = value.toInt();
    else if (name == "largest")
      out.largest = value.toBool();
    else if (name == "fill")
      out.fill = value.toDouble();
    else if (name == "low")
      out.low = value.toDouble();
    else if (name == "high")
      out.high = value.toDouble();
    else
      TORCH_INTERNAL_ASSERT(false, "the argument '", name, "' of ", consumer.name, " is unknown to read_arguments");
  }
  return out;
}

Call make_call(const Arguments& arguments) {
  Call call;
  call.consumer = arguments.consumer;
  call.program = Program::parse(arguments.program);
  if (arguments.dim == -2) call.program = std::make_shared<const Program>(call.program->transposed());
  call.operands = arguments.operands;
  if (arguments.dim == -2) {
    std::vector<bool> turned(call.operands.size());
    for (const Use& use : call.program->uses())
      if (use.role == Role::kPairIndices && !turned[use.slot]) {
        call.operands[use.slot] = call.operands[use.slot].mT();
        turned[use.slot] = true;
      }
  }
  call.constants = arguments.constants;
  call.values = arguments.values;
  call.k = arguments.k;
  call.largest = arguments.largest;
  call.fill = arguments.fill;
  call.low = arguments.low;
  call.high = arguments.high;
  return call;
}

}  // namespace torchpairwise::ops
