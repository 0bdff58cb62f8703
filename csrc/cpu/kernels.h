// The table of kernels that one instruction set provides. sweep, write_scores, sweep_sides and replay return the number of pairs that they
// evaluated. Everything here is single-threaded and torch-free; ops/cpu.cpp splits the work.
#pragma once

#include "cpu/problem.h"

namespace torchpairwise::cpu {

struct Kernels {
  const char* instruction_set;
  int tile_rows, tile_columns;  // of a register tile

  // The place of a consumer in ConsumerList; -1 where the kernels do not have it.
  int (*find_consumer)(const char* name);
  // A point near the column features of a source, [D], for the Gram form.
  void (*centre)(const Operand& features, void* out);
  // Bytes of one thread's scratch memory in forward and in replay, for the problem's tile sizes.
  Index (*sweep_workspace)(const Problem& problem);
  Index (*replay_workspace)(const Problem& problem, const Replay& replay);

  // Consumer state: `state_bytes` for one row. sweep() adds columns [column_begin, column_end) of rows [row_begin, row_end) to it.
  Index (*state_bytes)(const Problem& problem);
  void (*init)(const Problem& problem, Index n_rows, void* state);
  Index (*sweep)(const Problem& problem, Index row_begin, Index row_end, Index column_begin, Index column_end, void* state,
                 void* workspace);
  void (*merge)(const Problem& problem, Index n_rows, void* into, const void* from);
  void (*finish)(const Problem& problem, Index row_begin, Index n_rows, const void* state, const Result* results);

  // The scores of rows [row_begin, row_end) and columns [column_begin, column_end) into `out`, which starts at the first score of all.
  Index (*write_scores)(const Problem& problem, Index row_begin, Index row_end, Index column_begin, Index column_end, const Result& out,
                        double fill, void* workspace);

  // Two-sided: adds the pairs to the states of all consumers of `sides`.
  Index (*sides_workspace)(const Problem& problem, const Sides& sides);
  Index (*sweep_sides)(const Problem& problem, const Sides& sides, Index row_begin, Index row_end, Index column_begin, Index column_end,
                       void* workspace);

  // Adds the gradients of the pairs [row_begin, row_end) x [column_begin, column_end).
  Index (*replay)(const Problem& problem, const Replay& replay, Index row_begin, Index row_end, Index column_begin, Index column_end,
                  void* workspace);
};

// Kernels of the instruction set that is in use (see dispatch.cpp); T is float or double.
template <class T>
const Kernels& kernels();

}  // namespace torchpairwise::cpu
