#include "aten/sources.h"

#include <ATen/ATen.h>

#include "aten/differences.h"
#include "aten/entries.h"
#include "source/list.h"

namespace torchpairwise::aten {
namespace {

struct SourceEntry {
  const char* name;
  Tensor (*scores)(const Tensor& x, const Tensor& y, const SourceSettings& settings);
};

Tensor linear(const Tensor& x, const Tensor& y, const SourceSettings&) {
  if (!all_pairs(x, y)) return (x * y).sum(-1);
  return product(x.squeeze(-2), y.squeeze(-3).mT());
}

constexpr SourceEntry kSources[] = {{"linear", linear}, {"sqeuclidean", squared_euclidean}, {"manhattan", manhattan}};

// Without batch entries a matrix is a plain one, and torch multiplies the rows of all batch entries of the other side at once.
Tensor plain(const Tensor& x) {
  for (std::int64_t d = 0; d + 2 < x.dim(); ++d)
    if (x.size(d) != 1) return x;
  return x.reshape({x.size(-2), x.size(-1)});
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor second = plain(b), first = second.dim() == 2 ? a : plain(a), out = first.matmul(second);
  return out.dim() == a.dim() ? out : out.reshape([&] {
    std::vector<std::int64_t> sizes(a.dim() - out.dim(), 1);
    sizes.insert(sizes.end(), out.sizes().begin(), out.sizes().end());
    return sizes;
  }());
}

Tensor apply_source(int id, const Tensor& x, const Tensor& y, const SourceSettings& settings) {
  static const std::vector<const SourceEntry*> entries = entries_of<SourceList>(kSources, "aten/sources.cpp");
  return entries[id]->scores(x, y, settings);
}

}  // namespace torchpairwise::aten
