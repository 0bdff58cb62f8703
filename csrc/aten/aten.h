// The tensor path: every expression and consumer in tensor operations, for any device, dtype and order of derivative.
#pragma once

#include "ops/call.h"

namespace torchpairwise::aten {

// Results in the order of the consumer's record, from streamed tiles of bounded size. Records no gradients.
std::vector<at::Tensor> forward(const Call& call);

// Streamed first-order gradients of the operands and of the values (last) that `needs` asks for, in order; entries that it does not ask
// for are left out. `gradients` are those of the results (undefined where a result got none); `saved` are the results, undefined where
// ConsumerInfo::saved does not list them. Called with gradients not recorded; a Python comparison is differentiated inside.
std::vector<at::Tensor> replay(const Call& call, const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& saved,
                               const std::vector<bool>& needs);

// Rows of a call.
struct RowRange {
  Index begin = 0;
  Index length = -1;  // -1: all
};

// The results of forward() for some rows, from their scores against all columns in recorded operations: differentiable to any order,
// selected indices held constant.
std::vector<at::Tensor> differentiable(const Call& call, const RowRange& rows = {});

// How many rows differentiable() may take at a time, so that second derivatives stay within the plan's memory. Calls whose results are not
// rows of a reduction take all rows: their memory is that of their results.
Index differentiable_rows(const Call& call);

// JSON fields for explain(): tile [rows, columns] and workspace bytes.
std::string describe_plan(const Call& call);

}  // namespace torchpairwise::aten
