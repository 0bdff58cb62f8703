// The consumers of the fused kernels. diagonal and dense are not reductions: they reduce nothing.
#pragma once

#include "consumer/histogram.h"
#include "consumer/selections.h"
#include "consumer/softmax.h"
#include "consumer/sums.h"
#include "core/type_list.h"

namespace torchpairwise::consumer::TP_ISA {

template <class T>
using ConsumerList =
    TypeList<Sum<T>, Mean<T>, LogSumExp<T>, Matmul<T>, SoftmaxMatmul<T>, Extremum<T, false>, Extremum<T, true>, Topk<T>, Histogram<T>>;

}  // namespace torchpairwise::consumer::TP_ISA
