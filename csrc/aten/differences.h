// Sources made of differences of features: sum_d f(x_d - y_d).
#pragma once

#include "aten/sources.h"

namespace torchpairwise::aten {

Tensor squared_euclidean(const Tensor& x, const Tensor& y, const SourceSettings& settings);
Tensor manhattan(const Tensor& x, const Tensor& y, const SourceSettings& settings);

}  // namespace torchpairwise::aten
