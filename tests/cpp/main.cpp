// Uses torchpairwise as a LibTorch program does. Every result is compared with dense tensor operations here; the values that are printed as
// JSON are compared with Python by tests/test_libtorch.py.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torchpairwise/torchpairwise.h>

#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

namespace tp = torchpairwise::ops;
using at::Tensor;

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::cerr << "FAILED: " << what << "\n";
}

void expect_close(const Tensor& found, const Tensor& wanted, const std::string& what, double tolerance = 1e-9) {
  expect(found.sizes() == wanted.sizes() && at::allclose(found, wanted, tolerance, tolerance), what);
}

void expect_error(const std::function<void()>& f, const std::string& part) {
  try {
    f();
    expect(false, "no error that says '" + part + "'");
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    expect(text.find(part) != std::string::npos, "'" + text + "' does not say '" + part + "'");
  }
}

// Numbers that Python can make again: sin(phase + 1.3 i + 0.7 d).
Tensor numbers(std::int64_t rows, std::int64_t columns, double phase) {
  const Tensor i = at::arange(rows, at::kDouble).unsqueeze(-1), d = at::arange(columns, at::kDouble);
  return (i * 1.3 + d * 0.7 + phase).sin();
}

std::vector<Tensor> gradients(const Tensor& result, const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({result.square().sum()}, inputs, {}, /*retain_graph=*/true);
}

void print(const std::string& name, const Tensor& tensor, bool last = false) {
  std::cout << "  \"" << name << "\": [";
  const Tensor flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  for (std::int64_t n = 0; n < flat.numel(); ++n) std::cout << (n > 0 ? ", " : "") << std::setprecision(17) << flat[n].item<double>();
  std::cout << "]" << (last ? "\n" : ",\n");
}

// The values that Python compares.
void print_values() {
  const Tensor x = numbers(7, 3, 0.1).requires_grad_(), y = numbers(5, 3, 0.6).requires_grad_(), v = numbers(5, 2, 1.1).requires_grad_();
  const Tensor gamma = at::scalar_tensor(0.4, at::kDouble).requires_grad_(), bias = numbers(1, 5, 2.0)[0].requires_grad_();
  std::cout << "{\n";
  const Tensor mean = tp::pairwise_expression(x, y, "sqeuclidean").reduce("mean", -1);
  const std::vector<Tensor> of_mean = gradients(mean, {x, y});
  print("mean", mean);
  print("mean_gradient_x", of_mean[0]);
  print("mean_gradient_y", of_mean[1]);
  const Tensor logsumexp = tp::pairwise_expression(x, y, "rbf", {{"gamma", gamma}}).add_columns(bias).reduce("logsumexp", -2);
  const std::vector<Tensor> of_logsumexp = gradients(logsumexp, {x, gamma, bias});
  print("logsumexp", logsumexp);
  print("logsumexp_gradient_x", of_logsumexp[0]);
  print("logsumexp_gradient_gamma", of_logsumexp[1]);
  print("logsumexp_gradient_bias", of_logsumexp[2]);
  const Tensor attention = tp::pairwise_expression(x, y, "linear").scale(std::pow(3.0, -0.5)).masked(tp::masks::causal()).softmax_matmul(v);
  const std::vector<Tensor> of_attention = gradients(attention, {x, y, v});
  print("attention", attention);
  print("attention_gradient_x", of_attention[0]);
  print("attention_gradient_y", of_attention[1]);
  print("attention_gradient_v", of_attention[2]);
  const auto [nearest, indices] = tp::pairwise_expression(x, y, "cosine").topk(2, false);
  print("nearest", nearest);
  print("nearest_indices", indices, true);
  std::cout << "}\n";
}

// Every consumer on every path against dense operations; sizes that fill no tile.
void check_consumers(at::ScalarType dtype, double tolerance) {
  const Tensor x = numbers(37, 19, 0.1).to(dtype).requires_grad_(), y = numbers(53, 19, 0.6).to(dtype).requires_grad_();
  const Tensor v = numbers(53, 5, 1.1).to(dtype).requires_grad_(), r = numbers(1, 37, 2.0)[0].to(dtype).requires_grad_();
  const Tensor i = at::arange(37).unsqueeze(-1), j = at::arange(53), kept = (j - i).ge(-4).logical_and((j - i).le(30));
  const Tensor scores = ((x.unsqueeze(-2) - y).square().sum(-1) * -0.1).exp() + r.unsqueeze(-1);
  const Tensor zeros = scores.masked_fill(kept.logical_not(), 0), low = scores.masked_fill(kept.logical_not(), -INFINITY);
  for (const char* backend : {"native", "tiles", "auto"}) {
    const auto expression =
        tp::pairwise_expression(x, y, "rbf", {{"gamma", 0.1}}).add_rows(r).masked(tp::masks::band(4, 30)).backend(backend);
    const std::string where = std::string(" by ") + backend;
    const auto same = [&](const Tensor& found, const Tensor& wanted, const std::string& what, const std::vector<Tensor>& inputs) {
      expect_close(found, wanted, what + where, tolerance);
      const std::vector<Tensor> a = gradients(found, inputs), b = gradients(wanted, inputs);
      for (std::size_t n = 0; n < inputs.size(); ++n)
        expect_close(a[n], b[n], what + where + ", gradient " + std::to_string(n), tolerance * 100);
    };
    const Tensor counts = kept.sum(-1).to(dtype);
    same(expression.reduce("sum"), zeros.sum(-1), "sum", {x, y, r});
    same(expression.reduce("sum", -2), zeros.sum(-2), "sum over rows", {x, y, r});
    same(expression.reduce("mean"), zeros.sum(-1) / counts, "mean", {x, y, r});
    same(expression.reduce("logsumexp"), low.logsumexp(-1), "logsumexp", {x, y, r});
    same(expression.reduce("max"), low.amax(-1), "max", {x, y, r});
    same(std::get<0>(expression.max(-2)), low.amax(-2), "max over rows", {x, y, r});
    same(expression.matmul(v), zeros.matmul(v), "matmul", {x, y, r, v});
    same(expression.softmax_matmul(v), low.softmax(-1).matmul(v), "softmax_matmul", {x, y, r, v});
    same(std::get<0>(expression.topk(3)), std::get<0>(low.topk(3)), "topk", {x, y, r});
    same(expression.dense(), zeros, "dense", {x, y, r});
    same(expression.diagonal(), zeros.diagonal(), "diagonal", {x, y, r});
  }
}

void check_bad_input() {
  const Tensor x = numbers(4, 3, 0.1), y = numbers(5, 3, 0.6);
  expect_error([&] { tp::pairwise_expression(x, y, "euclidian"); }, "Did you mean 'euclidean'?");
  expect_error([&] { tp::pairwise_expression(x, y, "rbf", {{"gama", 0.1}}); }, "has no option 'gama'; it takes gamma, lengthscale");
  expect_error([&] { tp::pairwise_expression(x, y, "rbf", {{"gamma", 0.1}, {"lengthscale", 0.1}}); }, "give one");
  expect_error([&] { tp::pairwise_expression(x, y.to(at::kFloat)); }, "convert one of them");
  expect_error([&] { tp::pairwise_expression(x, numbers(5, 2, 0.6)); }, "both need the same D");
  expect_error([&] { tp::pairwise_expression(x[0], y); }, "expected [..., rows, features]");
  const auto expression = tp::pairwise_expression(x, y);
  expect_error([&] { expression.reduce("median"); }, "The reductions are sum, mean");
  expect_error([&] { expression.reduce("sum", 3); }, "expected -1");
  expect_error([&] { expression.node("sqr", {}); }, "Did you mean 'sqrt'?");
  expect_error([&] { expression.topk(6); }, "k is 6");
  expect_error([&] { expression.topk(-1); }, "k must not be negative");
  expect_error([&] { expression.add_rows(numbers(1, 9, 0)[0]).reduce("sum"); }, "row vector");
  expect_error([&] { expression.matmul(x); }, "values has shape");
  expect_error([&] { expression.exclude_self().reduce("sum"); }, "as many rows as columns");
  expect_error([&] { tp::pairwise_expression(x, y.slice(0, 0, 0)).reduce("mean"); }, "empty axis");
  expect_error([&] { expression.chunk_size(8).backend("native").reduce("sum"); }, "chunk_size limits");
}

void check_rest() {
  const Tensor x = numbers(6, 3, 0.1), half = x.to(at::kHalf);
  expect(tp::pairwise_expression(half, half).reduce("sum").scalar_type() == at::kHalf, "half results");
  expect_close(tp::compare(x, Tensor(), "euclidean").diagonal(), at::zeros(6, at::kDouble), "self-distances", 0);
  const auto others = tp::pairwise_expression(x, Tensor(), "sqeuclidean").exclude_self();
  expect(std::get<1>(others.min()).ne(at::arange(6)).all().item<bool>(), "exclude_self");
  const Tensor labels = at::arange(6).remainder(2);
  expect_close(others.masked(!tp::masks::same_group(labels, labels)).reduce("sum", 0),
               tp::compare(x, x).slice(0, 0, 6).mul(labels.unsqueeze(-1).ne(labels)).sum(0), "masks and positive dim");
  const Tensor product = (tp::pairwise_expression(x, x, "linear") * tp::pairwise_expression(x, x, "rbf")).reduce("sum");
  expect_close(product, (x.matmul(x.mT()) * tp::compare(x, x, "rbf")).sum(-1), "product of expressions");
  const Tensor widths = numbers(1, 3, 1.0)[0].abs();
  expect_close(tp::compare(x, x, "rbf", {{"gamma", widths}}), ((x.unsqueeze(-2) - x).square() * -widths).sum(-1).exp(),
               "one width a feature");
  expect_close(tp::compare(x, x, "rbf", {{"lengthscale", 2.0}}), tp::compare(x, x, "rbf", {{"gamma", 0.125}}), "lengthscale");
  const Tensor with_zero = at::cat({x, at::zeros({1, 3}, at::kDouble)});
  expect_close(tp::compare(with_zero, x * 1e30, "cosine")[6], at::ones(6, at::kDouble), "distance from a zero row");
}

}  // namespace

int main() {
  print_values();
  check_consumers(at::kDouble, 1e-9);
  check_consumers(at::kFloat, 2e-4);
  check_bad_input();
  check_rest();
  if (failures > 0) std::cerr << failures << " checks failed\n";
  return failures == 0 ? 0 : 1;
}
