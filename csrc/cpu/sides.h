// Two-sided sweeps: one evaluation of each pair feeds any number of consumers, of rows and of columns.
//
// It serves tp.sweep (a CLIP loss, Chamfer distances) and the symmetric mode, where the columns of a tile above the diagonal stand for the
// rows of its mirror image below.
#pragma once

#include "cpu/sweep.h"

namespace torchpairwise::cpu::TP_ISA {

// The problem as one consumer sees it.
TP_HD Problem problem_of(const Problem& problem, const Side& side) {
  Problem out = problem;
  out.consumer = side.consumer;
  out.values = side.values;
  out.k = side.k;
  out.largest = side.largest;
  return out;
}

template <class T>
struct ColumnSide {
  Problem problem;
  T* items = nullptr;  // [column_items][tile]
  Packed<T> values;    // of the strip's rows, [C][kTileRows]
};

template <class T>
class SidesPass {
 public:
  SidesPass(const Problem& problem, const Sides& sides, Arena& arena)
      : problem_(problem), sides_(sides), expression_(problem, true, arena), tile_(problem.tiles.tile_columns) {
    for (int n = 0; n < sides.n_rows; ++n) {
      row_problems_[n] = problem_of(problem, sides.rows[n]);
      row_values_[n] = ValueTile<T>(row_problems_[n], arena);
    }
    for (int n = 0; n < sides.n_columns; ++n) {
      ColumnSide<T>& column = columns_[n];
      column.problem = problem_of(problem, sides.columns[n]);
      visit_consumer<T>(column.problem, [&]<class Consumer>() {
        if constexpr (Consumer::kColumnSide) column.items = arena.take<T>(Consumer::column_items(options_of(column.problem)) * tile_);
      });
      const Index n_values = column.problem.values.size[1];
      if (n_values == 0) continue;
      column.values.panels = arena.take<T>(kTileRows * n_values + kPanelSlack<T>);
      column.values.bad = arena.take<unsigned char>(kTileRows);
    }
  }

  void run(Index row_begin, Index row_end, Index column_begin, Index column_end) {
    for (Index j = column_begin; j < column_end; j += tile_) {
      const Index n_columns = least(tile_, column_end - j), width = round_up(n_columns, kTileColumns<T>);
      begin_tile(j, n_columns, width, row_begin);
      for (Index i = row_begin; i < row_end; i += kTileRows) {
        const StripPlace place{i, least(kTileRows, row_end - i), j, n_columns, width};
        const Coverage coverage = expression_.classify(i, place.n_rows, j, n_columns);
        if (coverage == Coverage::kEmpty)
          skip(place);
        else
          strip(place, coverage, row_begin);
      }
      end_tile(j, n_columns, row_begin);
    }
  }

 private:
  template <class Consumer>
  static typename Consumer::State* state_of(const Side& side, const consumers::Options& options, Index n) {
    return reinterpret_cast<typename Consumer::State*>(static_cast<char*>(side.states) + n * Consumer::state_bytes(options));
  }

  consumers::Options column_options(int n, Index first_row) const {
    consumers::Options options = options_of(columns_[n].problem);
    options.first_row = first_row;
    return options;
  }

  void begin_tile(Index first, Index n_columns, Index width, Index first_row) {
    expression_.pack_columns(first, n_columns, width);
    for (int n = 0; n < sides_.n_rows; ++n) row_values_[n].pack_rows(first, n_columns, width, problem_.n_mask_steps > 0);
    for (int n = 0; n < sides_.n_columns; ++n)
      visit_consumer<T>(columns_[n].problem, [&]<class Consumer>() {
        if constexpr (Consumer::kColumnSide) Consumer::begin_columns(columns_[n].items, tile_, width, column_options(n, first_row));
      });
  }

  void end_tile(Index first, Index n_columns, Index first_row) {
    for (int n = 0; n < sides_.n_columns; ++n)
      visit_consumer<T>(columns_[n].problem, [&]<class Consumer>() {
        const consumers::Options options = column_options(n, first_row);
        if constexpr (Consumer::kColumnSide)
          for (Index j = 0; j < n_columns; ++j)
            Consumer::end_column(columns_[n].items, tile_, j, state_of<Consumer>(sides_.columns[n], options, first + j), options);
      });
  }

  void skip(const StripPlace& place) {
    for (int n = 0; n < sides_.n_rows; ++n)
      visit_consumer<T>(row_problems_[n], [&]<class Consumer>() {
        const consumers::Options options = options_of(row_problems_[n]);
        for (Index r = 0; r < place.n_rows; ++r)
          Consumer::skip(state_of<Consumer>(sides_.rows[n], options, place.first_row + r), place.first_column, place.n_columns, options);
      });
    for (int n = 0; n < sides_.n_columns; ++n)
      visit_consumer<T>(columns_[n].problem, [&]<class Consumer>() {
        const consumers::Options options = options_of(columns_[n].problem);
        for (Index j = 0; j < place.n_columns; ++j)
          Consumer::skip(state_of<Consumer>(sides_.columns[n], options, place.first_column + j), place.first_row, place.n_rows, options);
      });
  }

  void strip(const StripPlace& place, Coverage coverage, Index first_row) {
    expression_.evaluate(place);
    const unsigned char* keep = expression_.fill_keep(place, coverage) ? expression_.keep() : nullptr;
    for (int n = 0; n < sides_.n_rows; ++n)
      visit_consumer<T>(row_problems_[n], [&]<class Consumer>() { feed_rows<Consumer>(n, place, keep); });
    for (int n = 0; n < sides_.n_columns; ++n)
      visit_consumer<T>(columns_[n].problem, [&]<class Consumer>() {
        if constexpr (Consumer::kColumnSide) feed_columns<Consumer>(n, place, keep, first_row);
      });
  }

  // Each consumer gets scores of its own: it may overwrite them, and fills the excluded ones with its own neutral value.
  consumers::Strip<T> copy(const StripPlace& place, const unsigned char* keep, T neutral) {
    const Index stride = expression_.stride();
    const T* from = expression_.result();
    T* to = expression_.spare();
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index j = 0; j < place.width; ++j) to[r * stride + j] = from[r * stride + j];
    for (Index r = place.n_rows; r < kTileRows; ++r)
      for (Index j = 0; j < place.width; ++j) to[r * stride + j] = T(0);
    if (keep != nullptr) fill_excluded(to, keep, stride, place.n_rows, place.width, neutral);
    return {to, stride, place.n_columns, place.width, place.first_column, keep};
  }

  template <class Consumer>
  void feed_rows(int n, const StripPlace& place, const unsigned char* keep) {
    const consumers::Options options = options_of(row_problems_[n]);
    const consumers::Strip<T> scores = copy(place, keep, Consumer::neutral(options));
    const auto state = [&](Index r) { return state_of<Consumer>(sides_.rows[n], options, place.first_row + r); };
    for (Index r = 0; r < place.n_rows; ++r) Consumer::update(state(r), scores, r, options);
    if (!Consumer::kInfo.takes_values) return;
    row_values_[n].multiply(scores, place.n_rows);
    for (Index r = 0; r < place.n_rows; ++r) Consumer::accumulate(state(r), row_values_[n].product_row(r), options);
  }

  template <class Consumer>
  void feed_columns(int n, const StripPlace& place, const unsigned char* keep, Index first_row) {
    consumers::Options options = column_options(n, first_row);
    const consumers::Strip<T> scores = copy(place, keep, Consumer::neutral(options));
    ColumnSide<T>& column = columns_[n];
    Consumer::update_columns(column.items, tile_, scores, place.n_rows, place.first_row - first_row, options);
    if (options.n_values == 0) return;
    const Operand& values = column.problem.values;
    pack<T, kTileRows>(values, place.first_row, place.n_rows, kTileRows, nullptr, column.values);
    product<T>(options.n_values, place.width, kTileRows, column.values.panels, kTileRows, 1, scores.scores, scores.stride, column.items,
               tile_);
    for (Index r = 0; r < place.n_rows && column.values.n_bad > 0; ++r)
      for (Index c = 0; c < options.n_values && column.values.bad[r]; ++c) {
        const T v = static_cast<const T*>(values.data)[(place.first_row + r) * values.stride[0] + c * values.stride[1]];
        for (Index j = 0; j < place.n_columns; ++j)
          if (keep == nullptr || keep[r * scores.stride + j]) column.items[c * tile_ + j] += scores.row(r)[j] * v;
      }
  }

  const Problem& problem_;
  const Sides& sides_;
  Expression<T> expression_;
  Index tile_;
  Problem row_problems_[kMaxSides];
  ValueTile<T> row_values_[kMaxSides];
  ColumnSide<T> columns_[kMaxSides];
};

template <class T>
Index sides_workspace(const Problem& problem, const Sides& sides) {
  Arena arena(nullptr);
  SidesPass<T> pass(problem, sides, arena);
  return arena.used();
}

template <class T>
void sweep_sides(const Problem& problem, const Sides& sides, Index row_begin, Index row_end, Index column_begin, Index column_end,
                 void* workspace) {
  Arena arena(workspace);
  SidesPass<T> pass(problem, sides, arena);
  for (Index i = row_begin; i < row_end; i += problem.tiles.block_rows)
    pass.run(i, least(i + problem.tiles.block_rows, row_end), column_begin, column_end);
}

}  // namespace torchpairwise::cpu::TP_ISA
