// torchpairwise for LibTorch programs: pairwise scores that are described lazily, evaluated in tiles and never stored.
//
//   #include <torchpairwise/torchpairwise.h>
//
//   auto scores = torchpairwise::ops::pairwise_expression(X, Y, "rbf", {{"gamma", 0.2}});   // [N, M], not stored
//   auto mean = scores.reduce("mean", -1);                                                  // [N]
//   mean.sum().backward();                                                                  // gradients of X and Y, streamed
//
// The operations are those of the Python package; so are the names of metrics, options, nodes and consumers, the rules for ties, NaN and
// masks, and the messages. Bad arguments raise c10::ValueError, c10::TypeError or c10::IndexError.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace torchpairwise::ops {

// A number that is fixed, or a tensor that may be learned.
class Parameter {
 public:
  Parameter(double number) : number_(number) {}
  Parameter(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  bool is_tensor() const { return tensor_.defined(); }
  double number() const { return number_; }
  const at::Tensor& tensor() const { return tensor_; }
  Parameter operator-() const { return is_tensor() ? Parameter(-tensor_) : Parameter(-number_); }

 private:
  double number_ = 0.0;
  at::Tensor tensor_;
};

// Options of a metric by name: {{"gamma", 0.2}}, {{"gamma", learned}}, {{"lengthscale", widths}}.
using Options = std::map<std::string, Parameter>;

// A step of a program: a word of the registry, its tensors and its numbers.
struct ProgramStep {
  std::string word;
  std::vector<at::Tensor> tensors;
  std::vector<double> numbers;
};

// Which pairs are kept; True = keep. Masks combine with &, | and !.
class PairMask {
 public:
  explicit PairMask(std::vector<ProgramStep> steps) : steps_(std::move(steps)) {}

  PairMask operator&(const PairMask& other) const { return joined(other, "and"); }
  PairMask operator|(const PairMask& other) const { return joined(other, "or"); }
  PairMask operator!() const;
  const std::vector<ProgramStep>& steps() const { return steps_; }

 private:
  PairMask joined(const PairMask& other, const char* word) const;
  std::vector<ProgramStep> steps_;
};

namespace masks {
// Row i sees the columns up to its own: j <= i + M - N ("lower_right") or j <= i ("upper_left").
PairMask causal(const std::string& align = "lower_right");
// -lower <= j - i <= upper.
PairMask band(double lower, double upper);
// Pairs with equal labels, int64 [*batch, N] and [*batch, M].
PairMask same_group(const at::Tensor& rows, const at::Tensor& columns);
}  // namespace masks

// A lazy [*batch, N, M] matrix of scores. Immutable: every node returns a new expression. Nothing is evaluated before a consumer is called,
// and none but dense() holds N M numbers.
class PairwiseExpression {
 public:
  // Nodes: elementwise steps on a score s_ij. Vectors are [*batch, N] (rows) or [*batch, M] (columns); 0-dim tensors and vectors may
  // require gradients.
  PairwiseExpression scale(const Parameter& a) const { return node("scale", {a}); }
  PairwiseExpression shift(const Parameter& a) const { return node("shift", {a}); }
  PairwiseExpression add_rows(const at::Tensor& r) const { return node("add_rows", {r}); }
  PairwiseExpression add_columns(const at::Tensor& c) const { return node("add_columns", {c}); }
  PairwiseExpression weight_rows(const at::Tensor& r) const { return node("weight_rows", {r}); }
  PairwiseExpression weight_columns(const at::Tensor& c) const { return node("weight_columns", {c}); }
  PairwiseExpression exp() const { return node("exp"); }
  PairwiseExpression log() const { return node("log"); }
  PairwiseExpression log1p() const { return node("log1p"); }
  PairwiseExpression sqrt() const { return node("sqrt"); }
  PairwiseExpression square() const { return node("square"); }
  PairwiseExpression pow(double exponent) const { return node("pow", {exponent}); }
  PairwiseExpression abs() const { return node("abs"); }
  PairwiseExpression reciprocal() const { return node("reciprocal"); }
  PairwiseExpression tanh() const { return node("tanh"); }
  PairwiseExpression minimum(const Parameter& a) const { return node("minimum", {a}); }
  PairwiseExpression maximum(const Parameter& a) const { return node("maximum", {a}); }
  PairwiseExpression clamp(double least, double most) const { return node("clamp", {least, most}); }
  // Any node of the registry by its name.
  PairwiseExpression node(const std::string& name, const std::vector<Parameter>& arguments = {}) const;

  // Sums and products with another expression over the same rows and columns. A pair is kept if both keep it.
  PairwiseExpression operator+(const PairwiseExpression& other) const { return join("add", other); }
  PairwiseExpression operator*(const PairwiseExpression& other) const { return join("multiply", other); }
  PairwiseExpression join(const std::string& name, const PairwiseExpression& other) const;

  // Masks leave pairs out of every result. Flags are bool [*batch, N] or [*batch, M]; exclude_self leaves out i == j and needs N == M.
  PairwiseExpression masked(const PairMask& mask) const;
  PairwiseExpression mask_rows(const at::Tensor& keep) const;
  PairwiseExpression mask_columns(const at::Tensor& keep) const;
  PairwiseExpression exclude_self() const;

  // How to evaluate: "auto", "native" or "tiles"; at most `rows` rows and columns in a tile of tensors; plain expansion of distances
  // allowed.
  PairwiseExpression backend(const std::string& name) const;
  PairwiseExpression chunk_size(std::int64_t rows) const;
  PairwiseExpression fast(bool allowed = true) const;

  // Consumers. dim -1 reduces the columns (results [*batch, N]), dim -2 the rows (results [*batch, M]). All are differentiable.
  // Names: sum, mean, logsumexp, min, max.
  at::Tensor reduce(const std::string& name, std::int64_t dim = -1) const;
  // Values and indices; ties go to the lowest index.
  std::tuple<at::Tensor, at::Tensor> min(std::int64_t dim = -1) const { return select("min", dim); }
  std::tuple<at::Tensor, at::Tensor> max(std::int64_t dim = -1) const { return select("max", dim); }
  std::tuple<at::Tensor, at::Tensor> topk(std::int64_t k, bool largest = true, std::int64_t dim = -1) const;
  // sum_j s_ij V_jc and sum_j softmax_j(s_ij) V_jc with V [*batch, M, C] (dim -2: [*batch, N, C]).
  at::Tensor matmul(const at::Tensor& values, std::int64_t dim = -1) const;
  at::Tensor softmax_matmul(const at::Tensor& values, std::int64_t dim = -1) const;
  at::Tensor diagonal() const;
  at::Tensor dense(double fill = 0.0) const;

  // The call that a consumer makes: operands, program and constants of torch.ops.torchpairwise.
  std::tuple<std::vector<at::Tensor>, std::string, std::vector<double>> lower() const;

 private:
  friend PairwiseExpression pairwise_expression(const at::Tensor&, const at::Tensor&, const std::string&, const Options&);
  PairwiseExpression appended(ProgramStep step) const;
  std::tuple<at::Tensor, at::Tensor> select(const std::string& name, std::int64_t dim) const;
  std::int64_t checked(std::int64_t dim) const;
  at::Tensor computed(const at::Tensor& tensor, const char* name) const;  // an input in the dtype of the computation
  // The results of a consumer, given the arguments of its schema that follow the constants.
  std::vector<at::Tensor> run(const std::string& consumer, const std::vector<c10::IValue>& arguments) const;

  std::vector<ProgramStep> steps_, mask_steps_;
  at::ScalarType dtype_ = at::kFloat, compute_ = at::kFloat;  // of results, and of the computation
  std::string backend_ = "auto";
  std::int64_t chunk_size_ = 0;
  bool fast_ = false;
};

// The lazy scores of X [*batch, N, D] and Y [*batch, M, D]; an undefined Y, or X itself, makes a self-comparison. `metric` is a name or
// alias of the registry (linear, sqeuclidean, euclidean, manhattan, rbf, ...), `options` are its parameters. float16 and bfloat16 are
// computed in float32; integers become the default dtype.
PairwiseExpression pairwise_expression(const at::Tensor& X, const at::Tensor& Y, const std::string& metric = "sqeuclidean",
                                       const Options& options = {});

// The scores themselves, [*batch, N, M].
at::Tensor compare(const at::Tensor& X, const at::Tensor& Y, const std::string& metric = "sqeuclidean", const Options& options = {});

}  // namespace torchpairwise::ops
