// The sources. A Python or C++ comparison (make_pairwise, custom_expression) is the source "custom", which only the tensor path has.
#pragma once

#include "core/type_list.h"
#include "source/vectors.h"

namespace torchpairwise {

using SourceList = TypeList<Linear, SquaredEuclidean, Manhattan>;

}  // namespace torchpairwise
