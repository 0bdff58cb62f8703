// Two-sided sweeps: each pair is evaluated once and feeds any number of consumers, of rows and of columns.
//
// It serves tp.sweep (a CLIP loss, Chamfer distances) and the symmetric mode, where the columns of a tile above the diagonal stand for the
// rows of its mirror image below.
//
// A consumer reduces along rows of scores. For the columns, a block of kBlockRows rows of the tile is written down transposed, and its
// rows, which are the columns of the matrix, go through the same code: a consumer needs nothing of its own for either side.
#pragma once

#include "cpu/sweep.h"

namespace torchpairwise::cpu::TP_ISA {

// Rows of a transposed block: whole strips, and whole register tiles of every width (12 rows; 32, 16, 8 or 4 columns).
inline constexpr Index kBlockRows = 16 * kTileRows;
static_assert(kBlockRows % kTileColumns<float> == 0 && kBlockRows % kTileColumns<double> == 0);

// The problem as one consumer sees it.
TP_HD Problem problem_of(const Problem& problem, const Side& side) {
  Problem out = problem;
  out.consumer = side.consumer;
  out.values = side.values;
  out.k = side.k;
  out.largest = side.largest;
  out.low = side.low;
  out.high = side.high;
  return out;
}

template <class T>
class SidesPass {
 public:
  SidesPass(const Problem& problem, const Sides& sides, Arena& arena)
      : problem_(problem), sides_(sides), expression_(problem, false, arena), tile_(problem.tiles.tile_columns) {
    for (int n = 0; n < sides.n_rows; ++n) take(rows_[n], sides.rows[n], tile_, arena);
    for (int n = 0; n < sides.n_columns; ++n) take(columns_[n], sides.columns[n], kBlockRows, arena);
    stride_ = kBlockRows + kLanes<T>;
    copy_ = arena.take<T>(kTileRows * (expression_.stride() > stride_ ? expression_.stride() : stride_));
    if (sides.n_columns == 0) return;
    block_ = arena.take<T>(tile_ * stride_);
    keep_ = arena.take<unsigned char>(tile_ * stride_);
  }

  Index run(Index row_begin, Index row_end, Index column_begin, Index column_end) {
    row_begin_ = row_begin;
    column_begin_ = column_begin;
    for (Index j = column_begin; j < column_end; j += tile_) {
      const Index n_columns = least(tile_, column_end - j), width = round_up(n_columns, kTileColumns<T>);
      expression_.pack_columns(j, n_columns, width);
      for (int n = 0; n < sides_.n_rows; ++n) rows_[n].values.pack_rows(j, n_columns, width, masked());
      for (Index i = row_begin; i < row_end; i += kBlockRows) block(i, least(kBlockRows, row_end - i), j, n_columns, width);
    }
    return expression_.n_evaluated();
  }

 private:
  struct Consumed {
    Problem problem;  // with the consumer's own arguments
    ValueTile<T> values;
  };

  void take(Consumed& consumed, const Side& side, Index width, Arena& arena) const {
    consumed.problem = problem_of(problem_, side);
    consumed.problem.tiles.tile_columns = width;  // of the strips that the values meet
    consumed.values = ValueTile<T>(consumed.problem, arena);
  }

  bool masked() const { return problem_.masks[0].n_steps > 0; }

  template <class Consumer>
  static typename Consumer::State* state_of(const Side& side, const consumers::Options& options, Index n) {
    return reinterpret_cast<typename Consumer::State*>(static_cast<char*>(side.states) + n * Consumer::state_bytes(options));
  }

  // kBlockRows rows, or fewer, of a tile.
  void block(Index first_row, Index n_rows, Index first_column, Index n_columns, Index width) {
    const Index padded = round_up(n_rows, kTileColumns<T>);
    const Coverage coverage = expression_.classify(first_row, n_rows, first_column, n_columns);
    if (coverage == Coverage::kEmpty) {
      skip(sides_.rows, rows_, sides_.n_rows, first_row - row_begin_, n_rows, first_column, n_columns);
      skip(sides_.columns, columns_, sides_.n_columns, first_column - column_begin_, n_columns, first_row, n_rows);
      return;
    }
    const bool partial = coverage != Coverage::kFull || padded != n_rows;
    for (Index i = 0; i < n_rows; i += kTileRows) {
      const StripPlace place{first_row + i, least(kTileRows, n_rows - i), first_column, n_columns, width};
      strip(place, i, partial);
    }
    if (sides_.n_columns == 0) return;
    for (Index j = 0; j < n_columns; ++j)
      for (Index i = n_rows; i < padded; ++i) {
        block_[j * stride_ + i] = T(0);
        keep_[j * stride_ + i] = 0;
      }
    for (int n = 0; n < sides_.n_columns; ++n)
      visit_consumer<T>(columns_[n].problem,
                        [&]<class Consumer>() { feed_columns<Consumer>(n, first_row, n_rows, padded, first_column, n_columns, partial); });
  }

  static void skip(const Side* sides, const Consumed* consumed, int n_sides, Index first_state, Index n_states, Index first, Index count) {
    for (int n = 0; n < n_sides; ++n)
      visit_consumer<T>(consumed[n].problem, [&]<class Consumer>() {
        const consumers::Options options = options_of(consumed[n].problem);
        for (Index k = 0; k < n_states; ++k) Consumer::skip(state_of<Consumer>(sides[n], options, first_state + k), first, count, options);
      });
  }

  void strip(const StripPlace& place, Index row_of_block, bool partial) {
    const Coverage coverage = expression_.classify(place.first_row, place.n_rows, place.first_column, place.n_columns);
    if (coverage == Coverage::kEmpty) {
      skip(sides_.rows, rows_, sides_.n_rows, place.first_row - row_begin_, place.n_rows, place.first_column, place.n_columns);
      if (sides_.n_columns == 0) return;
      for (Index j = 0; j < place.n_columns; ++j)
        for (Index r = 0; r < place.n_rows; ++r) {
          block_[j * stride_ + row_of_block + r] = T(0);
          keep_[j * stride_ + row_of_block + r] = 0;
        }
      return;
    }
    expression_.evaluate(place);
    const unsigned char* keep = expression_.fill_keep(place, coverage) ? expression_.keep() : nullptr;
    if (sides_.n_columns > 0) write_transposed(place, row_of_block, keep, partial);
    for (int n = 0; n < sides_.n_rows; ++n)
      visit_consumer<T>(rows_[n].problem, [&]<class Consumer>() { feed_rows<Consumer>(n, place, keep); });
  }

  void write_transposed(const StripPlace& place, Index row_of_block, const unsigned char* keep, bool partial) {
    const T* scores = expression_.result();
    const Index from = expression_.stride();
    // Squares of vectors, transposed in registers. The lanes beyond the strip's rows are overwritten by the next strip, or are padding.
    constexpr int kSquare = kLanes<T>;
    for (Index j = 0; j < place.width; j += kSquare)
      for (int r = 0; r < kTileRows; r += kSquare) {
        Vector<T> square[kSquare];
#pragma GCC unroll 16
        for (int n = 0; n < kSquare; ++n) square[n] = r + n < kTileRows ? load(scores + (r + n) * from + j) : Vector<T>{};
        transpose<T>(square);
#pragma GCC unroll 16
        for (int n = 0; n < kSquare; ++n) store(block_ + (j + n) * stride_ + row_of_block + r, square[n]);
      }
    if (!partial) return;
    for (Index j = 0; j < place.n_columns; ++j)
      for (Index r = 0; r < place.n_rows; ++r) keep_[j * stride_ + row_of_block + r] = keep == nullptr ? 1 : keep[r * from + j];
  }

  // Each consumer but the last gets scores of its own: it may overwrite them, and fills the excluded ones with its own neutral value.
  static T* own(T* scores, T* copy, Index stride, Index n_rows, Index width, bool last) {
    if (last) return scores;
    for (Index r = 0; r < n_rows; ++r)
      for (Index j = 0; j < width; ++j) copy[r * stride + j] = scores[r * stride + j];
    return copy;
  }

  // Adds the rows of a strip to the states from `first_state` on.
  template <class Consumer>
  void feed(const Side& side, Consumed& consumed, consumers::Strip<T> strip, Index n_rows, Index first_state) {
    const consumers::Options options = options_of(consumed.problem);
    if (strip.keep != nullptr) fill_excluded(strip.scores, strip.keep, strip.stride, n_rows, strip.width, Consumer::neutral(options));
    for (Index r = 0; r < n_rows; ++r) Consumer::update(state_of<Consumer>(side, options, first_state + r), strip, r, options);
    if (!Consumer::kInfo.takes_values) return;
    consumed.values.multiply(strip, n_rows);
    for (Index r = 0; r < n_rows; ++r)
      Consumer::accumulate(state_of<Consumer>(side, options, first_state + r), consumed.values.product_row(r), options);
  }

  template <class Consumer>
  void feed_rows(int n, const StripPlace& place, const unsigned char* keep) {
    const Index stride = expression_.stride();
    T* scores = own(expression_.result(), copy_, stride, place.n_rows, place.width, n + 1 == sides_.n_rows);
    feed<Consumer>(sides_.rows[n], rows_[n], {scores, stride, place.n_columns, place.width, place.first_column, keep}, place.n_rows,
                   place.first_row - row_begin_);
  }

  template <class Consumer>
  void feed_columns(int n, Index first_row, Index n_rows, Index padded, Index first_column, Index n_columns, bool partial) {
    if (Consumer::kInfo.takes_values) columns_[n].values.pack_rows(first_row, n_rows, padded, masked());
    for (Index j = 0; j < n_columns; j += kTileRows) {
      const Index count = least(kTileRows, n_columns - j);
      T* scores = own(block_ + j * stride_, copy_, stride_, count, padded, n + 1 == sides_.n_columns);
      const unsigned char* keep = partial ? keep_ + j * stride_ : nullptr;
      feed<Consumer>(sides_.columns[n], columns_[n], {scores, stride_, n_rows, padded, first_row, keep}, count,
                     first_column - column_begin_ + j);
    }
  }

  const Problem& problem_;
  const Sides& sides_;
  Expression<T> expression_;
  Index tile_ = 0, stride_ = 0, row_begin_ = 0, column_begin_ = 0;
  Consumed rows_[kMaxSides], columns_[kMaxSides];
  T *copy_ = nullptr, *block_ = nullptr;
  unsigned char* keep_ = nullptr;
};

template <class T>
Index sides_workspace(const Problem& problem, const Sides& sides) {
  Arena arena(nullptr);
  SidesPass<T> pass(problem, sides, arena);
  return arena.used();
}

template <class T>
Index sweep_sides(const Problem& problem, const Sides& sides, Index row_begin, Index row_end, Index column_begin, Index column_end,
                  void* workspace) {
  Arena arena(workspace);
  SidesPass<T> pass(problem, sides, arena);
  return pass.run(row_begin, row_end, column_begin, column_end);
}

}  // namespace torchpairwise::cpu::TP_ISA
