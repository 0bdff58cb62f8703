// The lists that dispatch, the parser, describe() and the tests read. A name stands here once; its record stands in nodes.h, masks.h or
// tables.h.
#pragma once

#include "core/type_list.h"
#include "expr/masks.h"
#include "expr/nodes.h"
#include "expr/tables.h"

namespace torchpairwise {

using NodeList = TypeList<Scale, Shift, AddRows, AddColumns, WeightRows, WeightColumns, Exp, Log, Log1p, Sqrt, Square, Pow, Absolute,
                          Reciprocal, Tanh, Rsqrt, Sine, Cosine, Sigmoid, Softplus, Relu, Minimum, Maximum, Clamp, Greater, GreaterEqual,
                          Less, LessEqual, Equal, NotEqual>;

using JoinList = TypeList<Add, Multiply, MinimumOf, MaximumOf, GreaterOf, GreaterEqualOf, EqualOf, NotEqualOf>;

using MaskList = TypeList<Causal, Band, SameGroup, MaskRows, MaskColumns, OffDiagonal, Between, FirstRows, FirstColumns, Dilated>;

using TableList = TypeList<Relative, Diagonals, Lookup>;

}  // namespace torchpairwise
