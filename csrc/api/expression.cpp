#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "api/metric.h"
#include "consumer/info.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

at::ScalarType compute_type(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Gives each distinct tensor one slot and each number one constant.
class Writer {
 public:
  std::string write(const std::vector<ProgramStep>& steps) {
    std::string text;
    for (const ProgramStep& step : steps) {
      text += (text.empty() ? "" : "; ") + step.word;
      for (const Tensor& tensor : step.tensors) text += " " + std::to_string(slot(tensor));
      for (const double number : step.numbers) {
        text += " #" + std::to_string(constants.size());
        constants.push_back(number);
      }
    }
    return text;
  }
  std::vector<Tensor> operands;
  std::vector<double> constants;

 private:
  std::size_t slot(const Tensor& tensor) {
    const auto found = std::find_if(operands.begin(), operands.end(), [&](const Tensor& x) { return x.is_same(tensor); });
    if (found == operands.end()) {
      operands.push_back(tensor);
      return operands.size() - 1;
    }
    return static_cast<std::size_t>(found - operands.begin());
  }
};

void check_features(const Tensor& x, const char* name) {
  TORCH_CHECK_TYPE(!x.is_complex(), name, " has dtype ", x.scalar_type(), "; complex features are not supported");
  TORCH_CHECK_VALUE(x.dim() >= 2, name, " has shape ", x.sizes(), "; expected [..., rows, features]");
}

}  // namespace

PairMask PairMask::joined(const PairMask& other, const char* word) const {
  std::vector<ProgramStep> steps = steps_;
  steps.insert(steps.end(), other.steps_.begin(), other.steps_.end());
  steps.push_back({word, {}, {}});
  return PairMask(std::move(steps));
}

PairMask PairMask::operator!() const {
  std::vector<ProgramStep> steps = steps_;
  steps.push_back({"not", {}, {}});
  return PairMask(std::move(steps));
}

namespace masks {
PairMask causal(const std::string& align) {
  TORCH_CHECK_VALUE(align == "lower_right" || align == "upper_left", "align is '", align, "'; expected 'lower_right' or 'upper_left'");
  return PairMask({{"causal", {}, {align == "lower_right" ? 1.0 : 0.0}}});
}
PairMask band(double lower, double upper) { return PairMask({{"band", {}, {lower, upper}}}); }
PairMask same_group(const Tensor& rows, const Tensor& columns) {
  const auto labels = [](const Tensor& x) { return at::isIntegralType(x.scalar_type(), /*includeBool=*/true) ? x.to(at::kLong) : x; };
  return PairMask({{"same_group", {labels(rows), labels(columns)}, {}}});
}
}  // namespace masks

PairwiseExpression PairwiseExpression::appended(ProgramStep step) const {
  PairwiseExpression out = *this;
  out.steps_.push_back(std::move(step));
  return out;
}

Tensor PairwiseExpression::computed(const Tensor& tensor, const char* name) const {
  TORCH_CHECK_TYPE(tensor.scalar_type() == dtype_ || tensor.scalar_type() == compute_, name, " has dtype ", tensor.scalar_type(),
                   ", but the features have ", dtype_, "; convert one of them");
  return tensor.to(compute_);
}

PairwiseExpression PairwiseExpression::node(const std::string& name, const std::vector<Parameter>& arguments) const {
  const std::string signature = node_signature(name);
  TORCH_CHECK_VALUE(arguments.size() == signature.size(), name, " takes ", signature.size(), " arguments, got ", arguments.size());
  ProgramStep step{name, {}, {}};
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const Parameter& argument = arguments[n];
    const bool needs_number = signature[n] == '#', needs_vector = signature[n] == 'r' || signature[n] == 'c';
    TORCH_CHECK_TYPE(!(argument.is_tensor() ? needs_number : needs_vector), "argument ", n + 1, " of ", name,
                     needs_number ? " is a tensor; expected a number" : " is a number; expected a vector");
    if (!argument.is_tensor()) {
      step.numbers.push_back(argument.number());
      continue;
    }
    // Numbers never promote: a 0-dim tensor takes the dtype of the computation.
    const Tensor& x = argument.tensor();
    const bool is_scalar = signature[n] == 's' && x.numel() == 1 && x.dim() <= 1;
    step.tensors.push_back(is_scalar ? x.reshape({}).to(compute_) : computed(x, name.c_str()));
  }
  return appended(std::move(step));
}

PairwiseExpression PairwiseExpression::join(const std::string& name, const PairwiseExpression& other) const {
  TORCH_CHECK_TYPE(other.dtype_ == dtype_, "the expressions have dtypes ", dtype_, " and ", other.dtype_, "; convert one of them");
  PairwiseExpression out = *this;
  out.steps_.insert(out.steps_.end(), other.steps_.begin(), other.steps_.end());
  if (out.backend_ == "auto") out.backend_ = other.backend_;
  if (out.chunk_size_ == 0) out.chunk_size_ = other.chunk_size_;
  out.fast_ = fast_ && other.fast_;
  out.steps_.push_back({name, {}, {}});
  return other.mask_steps_.empty() ? out : out.masked(PairMask(other.mask_steps_));
}

PairwiseExpression PairwiseExpression::masked(const PairMask& mask) const {
  PairwiseExpression out = *this;
  const bool is_first = out.mask_steps_.empty();
  out.mask_steps_.insert(out.mask_steps_.end(), mask.steps().begin(), mask.steps().end());
  if (!is_first) out.mask_steps_.push_back({"and", {}, {}});
  return out;
}

PairwiseExpression PairwiseExpression::mask_rows(const Tensor& keep) const { return masked(PairMask({{"rows", {keep}, {}}})); }
PairwiseExpression PairwiseExpression::mask_columns(const Tensor& keep) const { return masked(PairMask({{"columns", {keep}, {}}})); }
PairwiseExpression PairwiseExpression::exclude_self() const { return masked(PairMask(std::vector<ProgramStep>{{"off_diagonal", {}, {}}})); }

PairwiseExpression PairwiseExpression::backend(const std::string& name) const {
  TORCH_CHECK_VALUE(name == "auto" || name == "native" || name == "tiles", "backend is '", name, "'; expected 'auto', 'native' or 'tiles'");
  PairwiseExpression out = *this;
  out.backend_ = name;
  return out;
}

PairwiseExpression PairwiseExpression::chunk_size(std::int64_t rows) const {
  TORCH_CHECK_VALUE(rows > 0, "chunk_size is ", rows, "; expected a positive number");
  PairwiseExpression out = *this;
  out.chunk_size_ = rows;
  return out;
}

PairwiseExpression PairwiseExpression::fast(bool allowed) const {
  PairwiseExpression out = *this;
  out.fast_ = allowed;
  return out;
}

std::tuple<std::vector<Tensor>, std::string, std::vector<double>> PairwiseExpression::lower() const {
  std::string choices = backend_ == "auto" ? "" : backend_;
  if (chunk_size_ > 0) choices += (choices.empty() ? "chunk=" : " chunk=") + std::to_string(chunk_size_);
  if (fast_) choices += choices.empty() ? "fast" : " fast";
  Writer writer;
  std::string program = (choices.empty() ? "" : choices + ": ") + writer.write(steps_);
  if (!mask_steps_.empty()) program += " | " + writer.write(mask_steps_);
  return {writer.operands, program, writer.constants};
}

std::vector<Tensor> PairwiseExpression::run(const std::string& consumer, const std::vector<c10::IValue>& arguments) const {
  const auto [operands, program, constants] = lower();
  torch::jit::Stack stack{operands, program, constants};
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  c10::Dispatcher::singleton().findSchemaOrThrow(("torchpairwise::" + consumer).c_str(), "").callBoxed(stack);
  std::vector<Tensor> out;
  for (const c10::IValue& result : stack) {
    const Tensor& tensor = result.toTensor();
    out.push_back(tensor.is_floating_point() ? tensor.to(dtype_) : tensor);
  }
  return out;
}

std::int64_t PairwiseExpression::checked(std::int64_t dim) const {
  const auto rank = [](const Tensor& x) { return x.dim(); };
  const std::int64_t n = std::max(rank(steps_[0].tensors[0]), rank(steps_[0].tensors[1]));
  const std::int64_t from_end = dim < 0 ? dim : dim - n;
  TORCH_CHECK_INDEX(from_end == -1 || from_end == -2, "dim is ", dim, "; expected -1 (over the columns) or -2 (over the rows)");
  return from_end;
}

Tensor PairwiseExpression::reduce(const std::string& name, std::int64_t dim) const {
  std::vector<std::string> known;
  const ConsumerInfo* info = nullptr;
  for (const ConsumerInfo* candidate : kConsumers) {
    if (std::string(candidate->arguments) != "int dim") continue;
    known.emplace_back(candidate->name);
    if (name == candidate->name) info = candidate;
  }
  TORCH_CHECK_VALUE(info != nullptr, "reduction '", name, "' is unknown", suggestion(name, known), ". The reductions are ", listed(known));
  return run(name, {checked(dim)})[0];
}

Pair PairwiseExpression::select(const std::string& name, std::int64_t dim) const {
  const std::vector<Tensor> results = run(name, {checked(dim)});
  return {results[0], results[1]};
}

Pair PairwiseExpression::topk(std::int64_t k, bool largest, std::int64_t dim) const {
  const std::vector<Tensor> results = run("topk", {k, checked(dim), largest});
  return {results[0], results[1]};
}

Tensor PairwiseExpression::matmul(const Tensor& values, std::int64_t dim) const {
  return run("matmul", {computed(values, "values"), checked(dim)})[0];
}

Tensor PairwiseExpression::softmax_matmul(const Tensor& values, std::int64_t dim) const {
  return run("softmax_matmul", {computed(values, "values"), checked(dim)})[0];
}

Tensor PairwiseExpression::diagonal() const { return run("diagonal", {})[0]; }

Tensor PairwiseExpression::dense(double fill) const { return run("dense", {fill})[0]; }

PairwiseExpression pairwise_expression(const Tensor& X, const Tensor& Y, const std::string& metric, const Options& options) {
  TORCH_CHECK_VALUE(X.defined(), "X is undefined; expected a tensor [..., N, D]");
  const Tensor& second = Y.defined() ? Y : X;
  check_features(X, "X");
  check_features(second, "Y");
  TORCH_CHECK_VALUE(X.device() == second.device(), "X is on ", X.device(), ", but Y is on ", second.device(), "; move one of them");
  TORCH_CHECK_TYPE(X.scalar_type() == second.scalar_type(), "X has dtype ", X.scalar_type(), ", but Y has ", second.scalar_type(),
                   "; convert one of them");
  PairwiseExpression out;
  out.dtype_ = X.is_floating_point() ? X.scalar_type() : c10::typeMetaToScalarType(c10::get_default_dtype());
  out.compute_ = compute_type(out.dtype_);
  const Tensor rows = X.to(out.compute_), columns = second.is_same(X) ? rows : second.to(out.compute_);
  out.steps_ = lower_metric(rows, columns, metric, options);
  return out;
}

Tensor compare(const Tensor& X, const Tensor& Y, const std::string& metric, const Options& options) {
  return pairwise_expression(X, Y, metric, options).dense();
}

}  // namespace torchpairwise::ops
