#include "aten/nodes.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "aten/entries.h"
#include "expr/list.h"

namespace torchpairwise::aten {
namespace {

using Arguments = NodeArguments;

struct NodeEntry {
  const char* name;
  Tensor (*forward)(const Tensor& s, const Arguments& x);
};

Tensor scale(const Tensor& s, const Arguments& x) { return x.tensor.defined() ? s * x.tensor : s * x.constant[0]; }
Tensor shift(const Tensor& s, const Arguments& x) { return x.tensor.defined() ? s + x.tensor : s + x.constant[0]; }
Tensor exp(const Tensor& s, const Arguments&) { return s.exp(); }
Tensor log(const Tensor& s, const Arguments&) { return s.log(); }
Tensor log1p(const Tensor& s, const Arguments&) { return s.log1p(); }
Tensor square(const Tensor& s, const Arguments&) { return s.square(); }
Tensor absolute(const Tensor& s, const Arguments&) { return s.abs(); }
Tensor reciprocal(const Tensor& s, const Arguments&) { return s.reciprocal(); }
Tensor tanh(const Tensor& s, const Arguments&) { return s.tanh(); }

// Where s = 0 the function sees 1 in its place, so that its derivatives of every order are finite, and then selected away.
template <class F>
Tensor apart_from_zero(const Tensor& s, double value_at_zero, F&& f) {
  const Tensor zero = s.eq(0);
  return at::where(zero, at::scalar_tensor(value_at_zero, s.options()), f(s.masked_fill(zero, 1)));
}

Tensor sqrt(const Tensor& s, const Arguments&) {
  return apart_from_zero(s, 0.0, [](const Tensor& t) { return t.sqrt(); });
}

Tensor rsqrt(const Tensor& s, const Arguments&) {
  return apart_from_zero(s, std::numeric_limits<double>::infinity(), [](const Tensor& t) { return t.rsqrt(); });
}
Tensor sine(const Tensor& s, const Arguments&) { return s.sin(); }
Tensor cosine(const Tensor& s, const Arguments&) { return s.cos(); }
Tensor sigmoid(const Tensor& s, const Arguments&) { return s.sigmoid(); }
Tensor softplus(const Tensor& s, const Arguments&) { return at::logaddexp(s, at::zeros({}, s.options())); }
Tensor relu(const Tensor& s, const Arguments&) { return s.relu(); }

// Whole exponents from 0 up are polynomials, whose derivatives need no care.
Tensor pow(const Tensor& s, const Arguments& x) {
  const double a = x.constant[0];
  if (a >= 0 && a == std::floor(a)) return s.pow(a);
  return apart_from_zero(s, a > 0 ? 0.0 : std::numeric_limits<double>::infinity(), [&](const Tensor& t) { return t.pow(a); });
}

Tensor argument_like(const Tensor& s, const Arguments& x) {
  return x.tensor.defined() ? x.tensor : at::scalar_tensor(x.constant[0], s.options());
}
Tensor minimum(const Tensor& s, const Arguments& x) { return at::minimum(s, argument_like(s, x)); }
Tensor maximum(const Tensor& s, const Arguments& x) { return at::maximum(s, argument_like(s, x)); }
Tensor clamp(const Tensor& s, const Arguments& x) { return s.clamp(x.constant[0], x.constant[1]); }

// 1 where `holds`, of the dtype of the scores; it must not be recorded.
template <Tensor (*holds)(const Tensor&, const Tensor&)>
Tensor indicator_of(const Tensor& s, const Tensor& t) {
  return holds(s.detach(), t.detach()).to(s.scalar_type());
}
template <Tensor (*holds)(const Tensor&, const Tensor&)>
Tensor indicator(const Tensor& s, const Arguments& x) {
  return indicator_of<holds>(s, argument_like(s, x));
}
Tensor greater(const Tensor& s, const Tensor& t) { return s.gt(t); }
Tensor greater_equal(const Tensor& s, const Tensor& t) { return s.ge(t); }
Tensor less(const Tensor& s, const Tensor& t) { return s.lt(t); }
Tensor less_equal(const Tensor& s, const Tensor& t) { return s.le(t); }
Tensor equal(const Tensor& s, const Tensor& t) { return s.eq(t); }
Tensor not_equal(const Tensor& s, const Tensor& t) { return s.ne(t); }

constexpr NodeEntry kNodes[] = {
    {"scale", scale},
    {"shift", shift},
    {"add_rows", shift},
    {"add_columns", shift},
    {"weight_rows", scale},
    {"weight_columns", scale},
    {"exp", exp},
    {"log", log},
    {"log1p", log1p},
    {"sqrt", sqrt},
    {"square", square},
    {"pow", pow},
    {"abs", absolute},
    {"reciprocal", reciprocal},
    {"tanh", tanh},
    {"minimum", minimum},
    {"maximum", maximum},
    {"clamp", clamp},
    {"rsqrt", rsqrt},
    {"sin", sine},
    {"cos", cosine},
    {"sigmoid", sigmoid},
    {"softplus", softplus},
    {"relu", relu},
    {"greater", indicator<greater>},
    {"greater_equal", indicator<greater_equal>},
    {"less", indicator<less>},
    {"less_equal", indicator<less_equal>},
    {"equal", indicator<equal>},
    {"not_equal", indicator<not_equal>},
};

struct JoinEntry {
  const char* name;
  Tensor (*forward)(const Tensor& s, const Tensor& t);
};

Tensor add(const Tensor& s, const Tensor& t) { return s + t; }
Tensor multiply(const Tensor& s, const Tensor& t) { return s * t; }

Tensor minimum_of(const Tensor& s, const Tensor& t) { return at::minimum(s, t); }
Tensor maximum_of(const Tensor& s, const Tensor& t) { return at::maximum(s, t); }

constexpr JoinEntry kJoins[] = {
    {"add", add},
    {"multiply", multiply},
    {"minimum_of", minimum_of},
    {"maximum_of", maximum_of},
    {"greater_of", indicator_of<greater>},
    {"greater_equal_of", indicator_of<greater_equal>},
    {"equal_of", indicator_of<equal>},
    {"not_equal_of", indicator_of<not_equal>},
};

}  // namespace

Tensor apply_node(int id, const Tensor& scores, const NodeArguments& arguments) {
  static const std::vector<const NodeEntry*> entries = entries_of<NodeList>(kNodes, "aten/nodes.cpp");
  return entries[id]->forward(scores, arguments);
}

Tensor apply_join(int id, const Tensor& first, const Tensor& second) {
  static const std::vector<const JoinEntry*> entries = entries_of<JoinList>(kJoins, "aten/nodes.cpp");
  return entries[id]->forward(first, second);
}

}  // namespace torchpairwise::aten
