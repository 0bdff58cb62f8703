// Scores of a tile: the program's steps on aligned operands.
#pragma once

#include "aten/operands.h"
#include "aten/sources.h"

namespace torchpairwise::aten {

// What pairs left out by a mask may do to derivatives. Their gradient is selected to 0, but 0 times an infinite derivative is NaN.
enum class Guard {
  kNone,    // nothing is done: right if all derivatives are finite
  kScores,  // no step sees the score of a left-out pair; features must be finite
  kPairs,   // nor do sources see its features: these are repeated for every pair, [*batch, r, c, D]
};

struct Evaluation {
  Order order = Order::kNone;
  Guard guard = Guard::kNone;
};

// Scores [*batch, r, c]; `keep` is undefined where every pair is kept.
Tensor evaluate(const Call& call, const Aligned& aligned, const Tensor& keep, const Evaluation& evaluation);

}  // namespace torchpairwise::aten
