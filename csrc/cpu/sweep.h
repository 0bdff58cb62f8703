// Forward: a block of rows keeps its consumer states while tiles of columns stream by.
#pragma once

#include "consumer/list.h"
#include "cpu/expression.h"
#include "cpu/products.h"

namespace torchpairwise::cpu::TP_ISA {

namespace consumers = consumer::TP_ISA;

TP_HD consumers::Options options_of(const Problem& problem) {
  return {problem.values.size[1], problem.k, problem.largest, problem.low, problem.high};
}

// The values of a tile of columns, V [M, C], packed for weights @ V: [C][width] when C is small, else [width][C padded].
template <class T>
class ValueTile {
 public:
  // Up to this many value columns the sums run along the strip; the padding of a row of V to whole vectors would cost more.
  static constexpr Index kFew = 4;

  ValueTile() = default;
  ValueTile(const Problem& problem, Arena& arena) : values_(problem.values), n_values_(options_of(problem).n_values) {
    if (n_values_ == 0) return;
    few_ = n_values_ <= kFew;
    stride_ = few_ ? problem.tiles.tile_columns : round_up(n_values_, kLanes<T>);
    packed_ = arena.take<T>(few_ ? n_values_ * stride_ : problem.tiles.tile_columns * stride_);
    bad_ = arena.take<unsigned char>(problem.tiles.tile_columns);
    product_stride_ = round_up(n_values_, kLanes<T>);
    product_ = arena.take<T>(kTileRows * product_stride_);
  }

  // Rows of V with a number that is not finite are packed as zeros when pairs may be excluded, and added one by one.
  void pack_rows(Index first, Index count, Index width, bool masked) {
    if (packed_ == nullptr) return;
    n_bad_ = 0;
    first_ = first;
    count_ = count;
    for (Index j = 0; j < width; ++j) {
      const T* row = static_cast<const T*>(values_.data) + (first + j) * values_.stride[0];
      T check = T(0);
      for (Index c = 0; c < n_values_ && j < count; ++c) {
        const T value = row[c * values_.stride[1]];
        at(j, c) = value;
        check += value * T(0);
      }
      const bool bad = masked && check != T(0);
      bad_[j] = bad;
      n_bad_ += bad;
      if (j >= count || bad)
        for (Index c = 0; c < n_values_; ++c) at(j, c) = T(0);
      for (Index c = n_values_; c < stride_ && !few_; ++c) packed_[j * stride_ + c] = T(0);
    }
  }

  // weights @ V for the rows of a strip; row r of the answer.
  void multiply(const consumers::Strip<T>& weights, Index n_rows) {
    if (packed_ == nullptr) return;
    if (few_) {
      dot_rows<T>(n_rows, n_values_, weights.width, weights.scores, weights.stride, packed_, stride_, product_, product_stride_);
    } else {
      for (Index k = 0; k < n_rows * product_stride_; ++k) product_[k] = T(0);
      product<T>(n_rows, product_stride_, weights.width, weights.scores, weights.stride, 1, packed_, stride_, product_, product_stride_);
    }
    if (n_bad_ == 0) return;
    for (Index j = 0; j < count_; ++j)
      for (Index r = 0; bad_[j] && r < n_rows; ++r) {
        if (weights.keep != nullptr && !weights.keep[r * weights.stride + j]) continue;
        const T* row = static_cast<const T*>(values_.data) + (first_ + j) * values_.stride[0];
        for (Index c = 0; c < n_values_; ++c) product_[r * product_stride_ + c] += weights.row(r)[j] * row[c * values_.stride[1]];
      }
  }
  const T* product_row(Index r) const { return product_ + r * product_stride_; }

 private:
  T& at(Index j, Index c) { return few_ ? packed_[c * stride_ + j] : packed_[j * stride_ + c]; }

  Operand values_;
  Index n_values_ = 0;
  bool few_ = false;
  T* packed_ = nullptr;
  Index stride_ = 0;
  unsigned char* bad_ = nullptr;
  Index n_bad_ = 0, first_ = 0, count_ = 0;
  T* product_ = nullptr;
  Index product_stride_ = 0;
};

// Overwrites the excluded entries of a strip.
template <class T>
void fill_excluded(T* scores, const unsigned char* keep, Index stride, Index n_rows, Index width, T neutral) {
  for (Index r = 0; r < n_rows; ++r) {
    T* row = scores + r * stride;
    const unsigned char* flags = keep + r * stride;
    for (Index j = 0; j < width; ++j) row[j] = flags[j] ? row[j] : neutral;
  }
}

// Returns the number of pairs evaluated.
template <class T, class Consumer>
Index sweep_rows(const Problem& problem, Index row_begin, Index row_end, Index column_begin, Index column_end, void* state,
                 void* workspace) {
  using State = typename Consumer::State;
  Arena arena(workspace);
  Expression<T> expression(problem, false, arena);
  ValueTile<T> values(problem, arena);
  const consumers::Options options = options_of(problem);
  const Index state_bytes = Consumer::state_bytes(options), tile = problem.tiles.tile_columns;
  const auto state_of = [&](Index i) { return reinterpret_cast<State*>(static_cast<char*>(state) + (i - row_begin) * state_bytes); };
  const auto skip = [&](Index begin, Index end, Index first_column, Index n_columns) {
    for (Index i = begin; i < end; ++i) Consumer::skip(state_of(i), first_column, n_columns, options);
  };
  for (Index j = column_begin; j < column_end; j += tile) {
    const Index n_columns = least(tile, column_end - j), width = round_up(n_columns, kTileColumns<T>);
    if (expression.classify(row_begin, row_end - row_begin, j, n_columns) == Coverage::kEmpty) {
      skip(row_begin, row_end, j, n_columns);
      continue;
    }
    expression.pack_columns(j, n_columns, width);
    if (Consumer::kInfo.takes_values) values.pack_rows(j, n_columns, width, problem.masks[0].n_steps > 0);
    for (Index i = row_begin; i < row_end; i += kTileRows) {
      const StripPlace place{i, least(kTileRows, row_end - i), j, n_columns, width};
      const Coverage coverage = expression.classify(i, place.n_rows, j, n_columns);
      if (coverage == Coverage::kEmpty) {
        skip(i, i + place.n_rows, j, n_columns);
        continue;
      }
      expression.evaluate(place);
      const bool partial = expression.fill_keep(place, coverage);
      const consumers::Strip<T> strip{expression.result(), expression.stride(), n_columns, width, j, partial ? expression.keep() : nullptr};
      if (partial) fill_excluded(strip.scores, strip.keep, strip.stride, place.n_rows, width, Consumer::neutral(options));
      for (Index r = 0; r < place.n_rows; ++r) Consumer::update(state_of(i + r), strip, r, options);
      if (!Consumer::kInfo.takes_values) continue;
      values.multiply(strip, place.n_rows);
      for (Index r = 0; r < place.n_rows; ++r) Consumer::accumulate(state_of(i + r), values.product_row(r), options);
    }
  }
  return expression.n_evaluated();
}

// The scores themselves, into `out`; excluded pairs get `fill`. Returns the number of pairs evaluated.
template <class T>
Index write_scores(const Problem& problem, Index row_begin, Index row_end, Index column_begin, Index column_end, const Result& out,
                   double fill, void* workspace) {
  Arena arena(workspace);
  Expression<T> expression(problem, false, arena);
  const Index tile = problem.tiles.tile_columns;
  const auto place_of = [&](Index i, Index j) { return static_cast<T*>(out.data) + i * out.stride[0] + j * out.stride[1]; };
  for (Index j = column_begin; j < column_end; j += tile) {
    const Index n_columns = least(tile, column_end - j), width = round_up(n_columns, kTileColumns<T>);
    expression.pack_columns(j, n_columns, width);
    for (Index i = row_begin; i < row_end; i += kTileRows) {
      const StripPlace place{i, least(kTileRows, row_end - i), j, n_columns, width};
      const Coverage coverage = expression.classify(i, place.n_rows, j, n_columns);
      if (coverage != Coverage::kEmpty) expression.evaluate(place);
      const bool partial = coverage != Coverage::kEmpty && expression.fill_keep(place, coverage);
      for (Index r = 0; r < place.n_rows; ++r) {
        T* to = place_of(i + r, j);
        const T* from = expression.result() + r * expression.stride();
        const unsigned char* keep = expression.keep() + r * expression.stride();
        if (coverage != Coverage::kEmpty && !partial && out.stride[1] == 1) {
          for (Index c = 0; c < n_columns; ++c) to[c] = from[c];
          continue;
        }
        for (Index c = 0; c < n_columns; ++c) {
          const bool kept = coverage != Coverage::kEmpty && (!partial || keep[c]);
          to[c * out.stride[1]] = kept ? from[c] : static_cast<T>(fill);
        }
      }
    }
  }
  return expression.n_evaluated();
}

template <class T>
Index sweep_workspace(const Problem& problem) {
  Arena arena(nullptr);
  Expression<T> expression(problem, false, arena);
  ValueTile<T> values(problem, arena);
  return arena.used();
}

// Calls f.operator()<Consumer>() for the problem's consumer.
template <class T, class F>
void visit_consumer(const Problem& problem, F&& f) {
  consumers::ConsumerList<T>::visit(problem.consumer, f);
}

template <class T>
int find_consumer(const char* name) {
  return consumers::ConsumerList<T>::find(name);
}

template <class T>
Index state_bytes(const Problem& problem) {
  Index bytes = 0;
  visit_consumer<T>(problem, [&]<class Consumer>() { bytes = Consumer::state_bytes(options_of(problem)); });
  return bytes;
}

template <class T>
void init(const Problem& problem, Index n_rows, void* state) {
  visit_consumer<T>(problem, [&]<class Consumer>() {
    const consumers::Options options = options_of(problem);
    for (Index r = 0; r < n_rows; ++r)
      Consumer::init(reinterpret_cast<typename Consumer::State*>(static_cast<char*>(state) + r * Consumer::state_bytes(options)), options);
  });
}

template <class T>
Index sweep(const Problem& problem, Index row_begin, Index row_end, Index column_begin, Index column_end, void* state, void* workspace) {
  Index evaluated = 0;
  visit_consumer<T>(problem, [&]<class Consumer>() {
    evaluated = sweep_rows<T, Consumer>(problem, row_begin, row_end, column_begin, column_end, state, workspace);
  });
  return evaluated;
}

template <class T>
void merge(const Problem& problem, Index n_rows, void* into, const void* from) {
  visit_consumer<T>(problem, [&]<class Consumer>() {
    using State = typename Consumer::State;
    const consumers::Options options = options_of(problem);
    const Index bytes = Consumer::state_bytes(options);
    for (Index r = 0; r < n_rows; ++r)
      Consumer::merge(reinterpret_cast<State*>(static_cast<char*>(into) + r * bytes),
                      reinterpret_cast<const State*>(static_cast<const char*>(from) + r * bytes), options);
  });
}

template <class T>
void finish(const Problem& problem, Index row_begin, Index n_rows, const void* state, const Result* results) {
  consumers::Outputs outputs;
  for (int n = 0; n < kMaxResults; ++n) {
    outputs.data[n] = results[n].data;
    for (int axis = 0; axis < 2; ++axis) outputs.stride[n][axis] = results[n].stride[axis];
  }
  visit_consumer<T>(problem, [&]<class Consumer>() {
    using State = typename Consumer::State;
    const consumers::Options options = options_of(problem);
    const Index bytes = Consumer::state_bytes(options);
    for (Index r = 0; r < n_rows; ++r)
      Consumer::finish(reinterpret_cast<const State*>(static_cast<const char*>(state) + r * bytes), row_begin + r, outputs, options);
  });
}

}  // namespace torchpairwise::cpu::TP_ISA
