// Squared Euclidean and Manhattan distances.
//
// A tile is the sum over blocks of features of f(x_d - y_d), so that its memory is a few numbers a pair and its value exact. Squared
// distances of many features are |x|^2 + |y|^2 - 2 x.y of rows moved to a common centre, where pairs that come out below kRescueRatio of
// |x|^2 + |y|^2 are evaluated again from their differences.
#include "aten/differences.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "aten/plan.h"
#include "aten/transforms.h"
#include "source/concept.h"

namespace torchpairwise::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Terms f of one feature: f(difference) and f'(difference), in place.
struct SquareTerm {
  static void value(Tensor& difference) { difference.mul_(difference); }
  static void slope(Tensor& difference) { difference.mul_(2); }
};
struct AbsoluteTerm {
  static void value(Tensor& difference) { difference.abs_(); }
  static void slope(Tensor& difference) { difference.sgn_(); }
};

// Features first, so that a block of them is a few contiguous vectors.
Tensor features_first(const Tensor& x) { return x.movedim(-1, 0).contiguous(); }

// Features of a block: one while a tile is large, more while the calls would cost more than the numbers.
std::int64_t block_of(const Tensor& x, const Tensor& y) {
  constexpr Index kNumbers = 1 << 16;
  Index pairs = 1;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d) pairs *= std::max(x.size(d), y.size(d));
  return std::clamp<Index>(kNumbers / std::max<Index>(1, pairs), 1, std::max<Index>(1, x.size(-1)));
}

template <class Term>
Tensor by_differences(const Tensor& x, const Tensor& y) {
  const Tensor xs = features_first(x), ys = features_first(y);
  const std::int64_t n_features = x.size(-1), block = block_of(x, y);
  Tensor scores;
  for (std::int64_t d = 0; d < n_features; d += block) {
    const std::int64_t n = std::min(block, n_features - d);
    Tensor part = xs.narrow(0, d, n) - ys.narrow(0, d, n);
    Term::value(part);
    part = n == 1 ? part.squeeze(0) : part.sum(0);
    scores = scores.defined() ? scores.add_(part) : part;
  }
  return scores.defined() ? scores : (xs.sum(0) + ys.sum(0));  // D = 0: zeros of the right shape
}

// Which of the two gradients are wanted.
struct Wanted {
  bool x = true, y = true;
};

// Gradients of the scores' weighted sum: dx_id = sum_j g_ij f'(x_id - y_jd), dy_jd = -sum_i g_ij f'(x_id - y_jd), in the shapes of x, y.
template <class Term>
std::pair<Tensor, Tensor> pull_differences(const Tensor& gradient, const Tensor& x, const Tensor& y, Wanted wanted) {
  const Tensor xs = features_first(x), ys = features_first(y);
  const std::int64_t n_features = x.size(-1), block = block_of(x, y);
  std::vector<Tensor> dx{at::empty_like(xs.narrow(0, 0, 0))}, dy{at::empty_like(ys.narrow(0, 0, 0))};
  for (std::int64_t d = 0; d < n_features; d += block) {
    const std::int64_t n = std::min(block, n_features - d);
    const Tensor xd = xs.narrow(0, d, n), yd = ys.narrow(0, d, n);
    Tensor part = xd - yd;
    Term::slope(part);
    part.mul_(gradient);
    if (wanted.x) dx.push_back(part.sum_to_size(xd.sizes()));
    if (wanted.y) dy.push_back(part.sum_to_size(yd.sizes()).neg());
  }
  return {wanted.x ? at::cat(dx, 0).movedim(0, -1) : Tensor(), wanted.y ? at::cat(dy, 0).movedim(0, -1) : Tensor()};
}

// Column features' mean [*batch, 1, 1, D]; numbers that are not finite do not spoil it.
Tensor centre_of(const Tensor& y) { return y.nan_to_num(0, 0, 0).mean(-2, true); }

// Batch dimensions of a centre may be more than those of x: a shared centre keeps x without batch entries of its own.
Tensor shared_centre(const Tensor& x, const Tensor& y) {
  Tensor centre = centre_of(y);
  for (std::int64_t d = 0; d + 3 < x.dim(); ++d)
    if (x.size(d) == 1 && centre.size(d) != 1) centre = centre.mean(d, true);
  return centre;
}

// The centre in multiples of a quarter of the spread (a power of two). Whole numbers stay exact, and with them the ties between equal
// distances; any point near the rows will do.
Tensor rounded(const Tensor& centre, const Tensor& y) {
  const Tensor spread = (y.nan_to_num(0, 0, 0) - centre).abs().amax();
  const Tensor quantum = spread / std::get<0>(spread.frexp()) * 0.125;  // spread / its mantissa: exactly a power of two
  return at::where(quantum.gt(0).logical_and(quantum.isfinite()), (centre / quantum).round() * quantum, centre);
}

struct Gram {
  Tensor x, y;    // centred rows [*batch, r, D] and [*batch, c, D]
  Tensor norms;   // |x_i|^2 + |y_j|^2
  Tensor scores;  // norms - 2 x_i . y_j
};

Gram expand(const Tensor& x, const Tensor& y, const Tensor& centre) {
  const at::NoTF32Guard exact_products;
  Gram out;
  out.x = (x - centre).squeeze(-2);
  out.y = (y - centre).squeeze(-3);
  out.norms = out.x.square().sum(-1, true) + out.y.square().sum(-1).unsqueeze(-2);
  out.scores = out.norms - product(out.x, out.y.mT()) * 2;
  return out;
}

// Evaluates the pairs listed by `near` again from their differences.
void rescue(const Tensor& x, const Tensor& y, const Tensor& near, Tensor& scores) {
  constexpr Index kNumbers = 1 << 19;  // of a part of the list: 2 MB of float32
  const Tensor places = near.nonzero();
  const Index step = std::max<Index>(1, kNumbers / std::max<Index>(1, x.size(-1)));
  const auto select = [](const Tensor& features, const Tensor& part, std::int64_t unused) {
    c10::List<std::optional<Tensor>> index;
    for (std::int64_t d = 0; d < part.size(-1); ++d)
      index.push_back(d == unused || features.size(d) == 1 ? at::zeros({1}, part.options()) : part.select(-1, d));
    return at::index(features, index);
  };
  const std::int64_t row_axis = near.dim() - 2, column_axis = near.dim() - 1;
  for (Index begin = 0; begin < places.size(0); begin += step) {
    const Tensor part = places.narrow(0, begin, std::min(step, places.size(0) - begin));
    c10::List<std::optional<Tensor>> index;
    for (const Tensor& axis : part.unbind(-1)) index.push_back(axis);
    const Tensor difference = select(x, part, column_axis) - select(y, part, row_axis);
    scores.index_put_(index, difference.square_().sum(-1));
  }
}

Tensor squared_scores(const Tensor& x, const Tensor& y, bool fast) {
  const bool may_expand = all_pairs(x, y) && x.size(-1) > 0 && !is_unreadable(x) && (fast || x.size(-1) > kDifferenceFeatures);
  if (!may_expand) return by_differences<SquareTerm>(x, y);
  Gram gram = expand(x, y, rounded(shared_centre(x, y), y));
  if (fast) return gram.scores.clamp_min_(0);
  constexpr Index kFew = 8;  // more than one pair in 8: the whole tile by differences costs less than a list
  const Tensor near = gram.scores.gt(gram.norms.mul_(kRescueRatio)).logical_not_();
  const Index n_near = near.sum().item<Index>();
  if (n_near * kFew > near.numel()) return by_differences<SquareTerm>(x, y);
  if (n_near > 0) rescue(x, y, near, gram.scores);
  return gram.scores;
}

// dx_i = 2 (x_i sum_j g_ij - sum_j g_ij y_j), from centred rows.
std::pair<Tensor, Tensor> pull_squared(const Tensor& gradient, const Tensor& x, const Tensor& y, Wanted wanted) {
  if (!all_pairs(x, y) || x.size(-1) <= kDifferenceFeatures) return pull_differences<SquareTerm>(gradient, x, y, wanted);
  const at::NoTF32Guard exact_products;
  const Tensor centre = shared_centre(x, y), xs = (x - centre).squeeze(-2), ys = (y - centre).squeeze(-3);
  Tensor dx, dy;
  if (wanted.x) dx = (xs * gradient.sum(-1, true) - product(gradient, ys)).mul_(2).unsqueeze(-2).sum_to_size(x.sizes());
  if (wanted.y) dy = (ys * gradient.sum(-2).unsqueeze(-1) - product(gradient.mT(), xs)).mul_(2).unsqueeze(-3).sum_to_size(y.sizes());
  return {dx, dy};
}

struct SquaredTile : torch::autograd::Function<SquaredTile> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& y, bool fast) {
    ctx->save_for_backward({x, y});
    return squared_scores(x, y, fast);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    auto [dx, dy] = pull_squared(gradients[0], saved[0], saved[1], {ctx->needs_input_grad(0), ctx->needs_input_grad(1)});
    return {dx, dy, Tensor()};
  }
};

// Value: the exact one. Derivatives of every order: those of the expansion, which is the same function.
Tensor squared_recorded(const Tensor& x, const Tensor& y, bool fast) {
  if (!all_pairs(x, y) || x.numel() == 0 || y.numel() == 0) return (x - y).square().sum(-1);
  const Tensor exact = squared_scores(x.detach(), y.detach(), fast);
  const Tensor expansion = expand(x, y, shared_centre(x.detach(), y.detach())).scores, value = expansion.detach();
  const Tensor difference = at::where(value.isfinite(), expansion - value, at::scalar_tensor(0.0, value.options()));
  return exact + difference;
}

// The two linear maps that Manhattan distances are made of; each is the other's derivative:
//   push: (u, v) -> sum_d sgn(x_id - y_jd) (u_id - v_jd)       with u = x, v = y the distance itself
//   pull: g -> (sum_j g_ij sgn(x_id - y_jd), -sum_i g_ij sgn(x_id - y_jd))
Tensor push_signs(const Tensor& u, const Tensor& v, const Tensor& x, const Tensor& y) {
  const Tensor us = features_first(u), vs = features_first(v), xs = features_first(x), ys = features_first(y);
  const std::int64_t n_features = x.size(-1), block = block_of(x, y);
  Tensor scores;
  for (std::int64_t d = 0; d < n_features; d += block) {
    const std::int64_t n = std::min(block, n_features - d);
    const auto part = [&](const Tensor& t) { return t.narrow(0, d, n); };
    const Tensor term = ((part(us) - part(vs)) * (part(xs) - part(ys)).sgn_()).sum(0);
    scores = scores.defined() ? scores + term : term;
  }
  return scores.defined() ? scores : (us.sum(0) + vs.sum(0));
}

struct PullSigns : torch::autograd::Function<PullSigns> {
  static variable_list forward(AutogradContext* ctx, const Tensor& gradient, const Tensor& x, const Tensor& y) {
    ctx->save_for_backward({x, y});
    auto [dx, dy] = pull_differences<AbsoluteTerm>(gradient, x, y, Wanted());
    return {dx, dy};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients);
};

struct PushSigns : torch::autograd::Function<PushSigns> {
  static Tensor forward(AutogradContext* ctx, const Tensor& u, const Tensor& v, const Tensor& x, const Tensor& y) {
    ctx->save_for_backward({x, y});
    return push_signs(u, v, x, y);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables(), out = PullSigns::apply(gradients[0], saved[0], saved[1]);
    return {out[0], out[1], Tensor(), Tensor()};
  }
};

variable_list PullSigns::backward(AutogradContext* ctx, variable_list gradients) {
  const variable_list saved = ctx->get_saved_variables();
  return {PushSigns::apply(gradients[0], gradients[1], saved[0], saved[1]), Tensor(), Tensor()};
}

struct ManhattanTile : torch::autograd::Function<ManhattanTile> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& y) {
    ctx->save_for_backward({x, y});
    return by_differences<AbsoluteTerm>(x, y);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    return PullSigns::apply(gradients[0], saved[0], saved[1]);
  }
};

}  // namespace

Tensor squared_euclidean(const Tensor& x, const Tensor& y, const SourceSettings& settings) {
  if (settings.order == Order::kNone) return squared_scores(x, y, settings.fast);
  if (settings.order == Order::kFirst) return SquaredTile::apply(x, y, settings.fast);
  return squared_recorded(x, y, settings.fast);
}

Tensor manhattan(const Tensor& x, const Tensor& y, const SourceSettings& settings) {
  if (settings.order == Order::kNone) return by_differences<AbsoluteTerm>(x, y);
  if (in_transform() || has_tangent(x) || has_tangent(y)) return (x - y).abs().sum(-1);
  return ManhattanTile::apply(x, y);
}

}  // namespace torchpairwise::aten
