// Bins of equal width, as in numpy.histogram: each holds its lower edge, and the last one its upper edge, too.
#pragma once

#include "core/macros.h"
#include "core/types.h"

namespace torchpairwise::consumer {

struct Edges {
  double low, high;
  Index n_bins;

  TP_HD double edge(Index n) const {
    return n == n_bins ? high : low + static_cast<double>(n) * ((high - low) / static_cast<double>(n_bins));
  }

  // -1 outside of the bins and for NaN. The quotient may miss by one where a score meets an edge; the edges decide.
  TP_HD Index bin_of(double score) const {
    if (!(score >= low && score <= high)) return -1;
    Index bin = static_cast<Index>((score - low) / (high - low) * static_cast<double>(n_bins));
    bin = bin < n_bins ? bin : n_bins - 1;
    if (score < edge(bin)) --bin;
    if (bin + 1 < n_bins && score >= edge(bin + 1)) ++bin;
    return bin;
  }
};

}  // namespace torchpairwise::consumer
