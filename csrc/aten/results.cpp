#include "aten/results.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

namespace torchpairwise::aten {
namespace {

bool is_index(const std::string& word) { return word.find_first_of("#%") != std::string::npos; }

std::string letters_of(const std::string& word) { return word.substr(0, word.find_first_of("#!%")); }

Index size_of(char letter, const Operands& operands) {
  switch (letter) {
    case 'N':
      return operands.n_rows();
    case 'M':
      return operands.n_columns();
    case 'C':
      return operands.values().size(-1);
    case 'k':
      return operands.call().k;
    default:
      TORCH_INTERNAL_ASSERT(letter == 'P', "unknown size '", letter, "' in the results of ", operands.call().consumer->name);
      return std::min(operands.n_rows(), operands.n_columns());
  }
}

}  // namespace

Results::Results(const Operands& operands) : operands_(operands) {
  std::istringstream words(operands.call().consumer->results);
  for (std::string word; words >> word;) words_.push_back(word);
}

std::vector<Tensor> Results::allocate() const {
  std::vector<Tensor> out;
  for (const std::string& word : words_) {
    std::vector<Index> sizes = operands_.batch();
    for (const char letter : letters_of(word)) sizes.push_back(size_of(letter, operands_));
    const at::TensorOptions options = operands_.options();
    out.push_back(at::empty(sizes, is_index(word) ? options.dtype(at::kLong) : options));
  }
  return out;
}

Tensor Results::part(const Tensor& result, std::size_t n, const Tile& tile) const {
  if (!result.defined()) return result;
  Tensor out = operands_.narrow_batch(result, tile.batch);
  std::int64_t d = static_cast<std::int64_t>(operands_.batch().size());
  for (const char letter : letters_of(words_[n])) {
    if (letter == 'N' || letter == 'P') out = out.narrow(d, tile.row, tile.n_rows);
    if (letter == 'M') out = out.narrow(d, tile.column, tile.n_columns);
    ++d;
  }
  return out;
}

std::vector<Tensor> Results::parts(const std::vector<Tensor>& results, const Tile& tile) const {
  std::vector<Tensor> out;
  for (std::size_t n = 0; n < words_.size(); ++n) out.push_back(part(results[n], n, tile));
  return out;
}

}  // namespace torchpairwise::aten
