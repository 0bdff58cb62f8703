// Consumers in tensor operations.
//
// A reduction is a struct of static functions on the states of the rows of a tile; a state is a list of tensors [*batch, r, ...]:
//
//   static constexpr const ConsumerInfo& kInfo;
//   static State neutral(const Rows&)                       the state of no columns at all
//   static State reduce(const ScoreTile&)                   the state of one tile
//   static State merge(State, State)                        of two sets of columns, the first one to the left
//   static std::vector<Tensor> finish(State, const Rows&)   results in the order of the record, without casts
//   static Cotangent cotangent(const ScoreTile&, const ResultGradients&)    d loss / d score; pairs left out may hold anything
//   static std::vector<Tensor> whole(const ScoreTile&)      results of one tile that is the whole matrix, in recorded operations
//
// Laws: neutral is neutral for merge; merge is associative up to rounding, and exactly so for selections. Sums are kept in the dtype of the
// scores within a tile and in float64 across tiles.
#pragma once

#include "aten/operands.h"

namespace torchpairwise::aten {

using State = std::vector<Tensor>;

struct ScoreTile {
  ScoreTile(const Call& call, const Tensor& scores, const Tensor& keep);

  const Call& call;
  Tensor scores;       // [*batch, r, c]
  Tensor keep;         // broadcasts against them; undefined where every pair is kept
  Tensor values;       // [*batch, c, C] or undefined
  bool finite = true;  // no NaN or infinity in the values, nor in the gradients that they are multiplied by
  Index first_column = 0;

  // The scores, with `value` where a pair is left out.
  Tensor filled(double value) const;
};

// Rows of a tile.
struct Rows {
  const Call& call;
  std::vector<Index> sizes;   // [*batch, r]
  at::TensorOptions options;  // of the scores
};

// By result: gradients and saved results [*batch, r, ...]; undefined where there are none.
struct ResultGradients {
  std::vector<Tensor> gradients, saved;
  // sum_j exp(s_ij - logsumexp_i) where large scores, evaluated in tiles of another shape, make it differ from 1; undefined elsewhere.
  Tensor total;
};

struct Cotangent {
  Tensor scores;
  Tensor weights;  // with values: d loss / d V = weights^T @ gradient; left-out pairs hold 0
};

struct ConsumerEntry {
  const char* name;
  State (*neutral)(const Rows&);
  State (*reduce)(const ScoreTile&);
  State (*merge)(const State&, const State&, const Call&);
  std::vector<Tensor> (*finish)(const State&, const Rows&);
  Cotangent (*cotangent)(const ScoreTile&, const ResultGradients&);
  std::vector<Tensor> (*whole)(const ScoreTile&);
  int logsumexp = -1;  // number of the result that is the row's logsumexp
};

// The entry of a call's consumer. `diagonal` and `dense` reduce nothing and have none.
const ConsumerEntry& consumer_entry(const Call& call);

bool is(const Call& call, const ConsumerInfo& info);
bool is_selection(const Call& call);

// weights @ values where left-out pairs count nothing, whatever their values are.
Tensor masked_product(const Tensor& weights, const Tensor& values, const Tensor& keep, bool finite);

// A number of the dtype and device of `like`, for at::where.
Tensor number_like(double value, const Tensor& like);

}  // namespace torchpairwise::aten
