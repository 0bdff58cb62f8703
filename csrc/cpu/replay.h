// Backward: every pair is evaluated again and its gradient handed on, for both sides, in one pass.
//
// For a tile of columns and a strip of rows:
//   s       = expression(x_i, y_j)                      forward again, every step's scores kept
//   G       = consumer's cotangent(s)                   d loss / d s; with values it needs gradient . V_j, one product
//   G_in    = G_out * node's derivative                 back through the steps; vectors and scalars collect G * argument derivative
//   dX_i   += sum_j G_ij pull(x_i, y_j)                 rows: float64 sums kept for the block of rows
//   dY_j   += sum_i G_ij pull_column(x_i, y_j)          columns: sums kept for the tile, transposed [D][width]
//   dV_j   += sum_i weights_ij gradient_i
// softmax_matmul: 5 products (scores, gradient . V, dX, dY, dV); matmul 5 with one exp; logsumexp 3.
#pragma once

#include "cpu/sweep.h"

namespace torchpairwise::cpu::TP_ISA {

// d/dX and d/dY of a source over one strip.
//   row_sums [D][kTileRows] (double), column_sums [D][column_stride]; x [D][kTileRows], y panels [D][kTileColumns].
template <class T, class Source>
void pull_strip(const T* x, const T* panels, Index n_features, Index width, const T* gradient, Index stride, double* row_sums,
                T* column_sums, Index column_stride) {
  for (Index d = 0; d < n_features; ++d) {
    Vector<T> rows[kTileRows];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) rows[r] = Vector<T>{};
    for (Index j = 0; j < width; j += kLanes<T>) {
      const Index panel = j / kTileColumns<T>, lane = j % kTileColumns<T>;
      const Vector<T> y = load(panels + panel * n_features * kTileColumns<T> + d * kTileColumns<T> + lane);
      Vector<T> columns = load(column_sums + d * column_stride + j);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const Vector<T> g = load(gradient + r * stride + j), xr = broadcast(x[d * kTileRows + r]);
        rows[r] += g * Source::pull(xr, y);
        columns += g * Source::pull_column(xr, y);
      }
      store(column_sums + d * column_stride + j, columns);
    }
    for (int r = 0; r < kTileRows; ++r) row_sums[d * kTileRows + r] += horizontal_sum<T>(rows[r]);
  }
}

// Sums of a product-form source (dot products, or the Gram form of squared distances): dX += G Y, dY^T += X^T G.
//   y_rows [width][y_stride], zero-padded to whole vectors; product is scratch [kTileRows][y_stride].
template <class T>
void pull_products(const T* x, const T* y_rows, Index y_stride, Index n_features, Index width, const T* gradient, Index stride,
                   T* product_scratch, double* row_sums, T* column_sums, Index column_stride) {
  for (Index k = 0; k < kTileRows * y_stride; ++k) product_scratch[k] = T(0);
  product<T>(kTileRows, y_stride, width, gradient, stride, 1, y_rows, y_stride, product_scratch, y_stride);
  for (Index r = 0; r < kTileRows; ++r)
    for (Index d = 0; d < n_features; ++d) row_sums[d * kTileRows + r] += product_scratch[r * y_stride + d];
  product<T>(n_features, width, kTileRows, x, kTileRows, 1, gradient, stride, column_sums, column_stride);
}

// Gradient memory of one source or one vector argument.
template <class T>
struct PullMemory {
  double* row_sums = nullptr;   // sources: [strips of the block][D][kTileRows]; row vectors: [block rows]
  double* row_total = nullptr;  // Gram form: sum_j G_ij, [block rows]
  T* column_sums = nullptr;     // sources: [D][tile]; column vectors: [tile]
  T* column_total = nullptr;    // Gram form: sum_i G_ij, [tile]
  T* y_rows = nullptr;          // product form: [tile][y_stride]
  Index y_stride = 0;
  T* product_scratch = nullptr;
  bool wanted = false;
};

template <class T>
class ReplayPass {
 public:
  // Below this many features the register sums of pull_strip cost no more than padded products.
  static constexpr Index kProductFeatures = 16;

  ReplayPass(const Problem& problem, const Replay& replay, Arena& arena)
      : problem_(problem), replay_(replay), expression_(problem, true, arena), tile_(problem.tiles.tile_columns) {
    const Index block = round_up(problem.tiles.block_rows, kTileRows);
    for (int n = 0; n < problem.n_steps; ++n) take_step(n, block, arena);
    for (int level = 0; level < problem.depth; ++level) gradients_[level] = arena.take<T>(kTileRows * expression_.stride());
    n_values_ = options_of(problem).n_values;
    if (n_values_ == 0) return;
    value_panels_.panels = arena.take<T>(tile_ * n_values_);
    value_panels_.bad = arena.take<unsigned char>(tile_);
    gradient_panel_.panels = arena.take<T>(kTileRows * n_values_ + kPanelSlack<T>);
    gradient_panel_.bad = arena.take<unsigned char>(kTileRows);
    value_product_ = arena.take<T>(kTileRows * expression_.stride());
    if (replay.values.data != nullptr) value_sums_ = arena.take<T>(n_values_ * tile_);
  }

  template <class Consumer>
  void run(Index row_begin, Index row_end, Index column_begin, Index column_end) {
    block_begin_ = row_begin;
    clear_rows(row_end - row_begin);
    for (Index j = column_begin; j < column_end; j += tile_) {
      const Index n_columns = least(tile_, column_end - j), width = round_up(n_columns, kTileColumns<T>);
      if (expression_.classify(row_begin, row_end - row_begin, j, n_columns) == Coverage::kEmpty) continue;
      begin_tile(j, n_columns, width);
      for (Index i = row_begin; i < row_end; i += kTileRows) {
        const StripPlace place{i, least(kTileRows, row_end - i), j, n_columns, width};
        const Coverage coverage = expression_.classify(i, place.n_rows, j, n_columns);
        if (coverage != Coverage::kEmpty) strip<Consumer>(place, coverage);
      }
      flush_columns(j, n_columns);
    }
    flush_rows(row_end - row_begin);
  }

  Index n_evaluated() const { return expression_.n_evaluated(); }

 private:
  bool wants(const Result& result) const { return result.data != nullptr; }

  void take_step(int n, Index block, Arena& arena) {
    const Step& step = problem_.steps[n];
    PullMemory<T>& memory = pulls_[n];
    if (step.kind == StepKind::kSource) {
      const Index n_features = problem_.operands[step.slot[0]].size[1];
      memory.wanted = wants(replay_.rows[step.slot[0]]) || wants(replay_.columns[step.slot[1]]);
      if (!memory.wanted) return;
      memory.row_sums = arena.take<double>(block * n_features);
      memory.column_sums = arena.take<T>(n_features * tile_);
      if (!by_products(n)) return;
      memory.y_stride = round_up(n_features, kLanes<T>);
      memory.y_rows = arena.take<T>(tile_ * memory.y_stride);
      memory.product_scratch = arena.take<T>(kTileRows * memory.y_stride);
      memory.row_total = arena.take<double>(block);
      memory.column_total = arena.take<T>(tile_);
    } else if (step.kind == StepKind::kNode && step.slot[0] >= 0) {
      const char letter = Expression<T>::argument_letter(step);
      memory.wanted = letter == 'r' ? wants(replay_.rows[step.slot[0]])
                                    : (letter == 'c' ? wants(replay_.columns[step.slot[0]]) : replay_.scalars != nullptr);
      if (!memory.wanted) return;
      if (letter == 'r') memory.row_sums = arena.take<double>(block);
      if (letter == 'c') memory.column_sums = arena.take<T>(tile_);
    }
  }

  // Products serve dot products and the Gram form with enough features.
  bool by_products(int n) const {
    const Step& step = problem_.steps[n];
    Form form = Form::kDifference;
    SourceList::visit(step.id, [&]<class Source>() { form = Source::kInfo.form; });
    const bool linear = form == Form::kProduct && problem_.operands[step.slot[0]].size[1] >= kProductFeatures;
    return linear || problem_.centres[n] != nullptr;
  }

  void clear_rows(Index n_rows) {
    for (int n = 0; n < problem_.n_steps; ++n) {
      PullMemory<T>& memory = pulls_[n];
      if (memory.row_sums == nullptr) continue;
      const bool source = problem_.steps[n].kind == StepKind::kSource;
      const Index each = source ? problem_.operands[problem_.steps[n].slot[0]].size[1] : 1;
      const Index padded = round_up(n_rows, kTileRows);
      for (Index k = 0; k < padded * each; ++k) memory.row_sums[k] = 0;
      for (Index k = 0; memory.row_total != nullptr && k < padded; ++k) memory.row_total[k] = 0;
    }
  }

  void begin_tile(Index first, Index n_columns, Index width) {
    expression_.pack_columns(first, n_columns, width);
    for (int n = 0; n < problem_.n_steps; ++n) {
      PullMemory<T>& memory = pulls_[n];
      const bool source = problem_.steps[n].kind == StepKind::kSource;
      const Index n_features = source ? problem_.operands[problem_.steps[n].slot[0]].size[1] : 1;
      for (Index k = 0; memory.column_sums != nullptr && k < n_features * tile_; ++k) memory.column_sums[k] = T(0);
      for (Index k = 0; memory.column_total != nullptr && k < tile_; ++k) memory.column_total[k] = T(0);
      if (memory.y_rows != nullptr) unpack_rows(expression_.step(n).columns.panels, n_features, width, memory);
    }
    if (n_values_ == 0) return;
    pack<T, kTileColumns<T>>(problem_.values, first, n_columns, width, nullptr, value_panels_);
    for (Index k = 0; value_sums_ != nullptr && k < n_values_ * tile_; ++k) value_sums_[k] = T(0);
  }

  // y_rows[j][d] from the packed panels.
  static void unpack_rows(const T* panels, Index n_features, Index width, PullMemory<T>& memory) {
    for (Index j = 0; j < width; ++j) {
      const T* from = panels + (j / kTileColumns<T>)*n_features * kTileColumns<T> + j % kTileColumns<T>;
      T* to = memory.y_rows + j * memory.y_stride;
      for (Index d = 0; d < n_features; ++d) to[d] = from[d * kTileColumns<T>];
      for (Index d = n_features; d < memory.y_stride; ++d) to[d] = T(0);
    }
  }

  template <class Consumer>
  void strip(const StripPlace& place, Coverage coverage) {
    const consumers::Options options = options_of(problem_);
    const Index stride = expression_.stride();
    expression_.evaluate(place);
    const bool partial = expression_.fill_keep(place, coverage);
    keep_ = partial ? expression_.keep() : nullptr;
    // The consumer may overwrite the scores (softmax turns them into weights): a copy, since the steps' own are needed below.
    T* weights = copy_result(place);
    const consumers::Strip<T> scores{weights, stride, place.n_columns, place.width, place.first_column, keep_};
    if (partial) fill_excluded(weights, keep_, stride, place.n_rows, place.width, Consumer::neutral(options));
    if (n_values_ > 0) multiply_values(place);
    T* gradient = gradients_[0];
    for (Index r = 0; r < place.n_rows; ++r)
      Consumer::cotangent(scores, r, row_gradient(place.first_row + r, r, Consumer::kInfo.takes_values), gradient + r * stride);
    for (Index r = place.n_rows; r < kTileRows; ++r)
      for (Index j = 0; j < place.width; ++j) gradient[r * stride + j] = weights[r * stride + j] = T(0);
    if (value_sums_ != nullptr) pull_values(place, weights);
    backward(place);
  }

  // dV^T += gradient^T weights; rows whose gradient is not finite stand outside the panel, since their excluded pairs must not count.
  void pull_values(const StripPlace& place, const T* weights) {
    const Index stride = expression_.stride();
    product<T>(n_values_, place.width, kTileRows, gradient_panel_.panels, kTileRows, 1, weights, stride, value_sums_, tile_);
    if (gradient_panel_.n_bad == 0) return;
    const Operand& from = replay_.gradients[0];
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index c = 0; c < n_values_ && gradient_panel_.bad[r]; ++c) {
        const T g = static_cast<const T*>(from.data)[(place.first_row + r) * from.stride[0] + c * from.stride[1]];
        for (Index j = 0; j < place.n_columns; ++j)
          if (keep_ == nullptr || keep_[r * stride + j]) value_sums_[c * tile_ + j] += weights[r * stride + j] * g;
      }
  }

  T* copy_result(const StripPlace& place) {
    T* scores = expression_.result();
    T* copy = expression_.spare();
    const Index stride = expression_.stride();
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index j = 0; j < place.width; ++j) copy[r * stride + j] = scores[r * stride + j];
    return copy;
  }

  // value_product_[r][j] = sum_c gradient_rc V_jc
  void multiply_values(const StripPlace& place) {
    pack<T, kTileRows>(replay_.gradients[0], place.first_row, place.n_rows, kTileRows, nullptr, gradient_panel_);
    score_strip<T, Linear>(gradient_panel_.panels, value_panels_.panels, n_values_, place.width, value_product_, expression_.stride());
    if (value_panels_.n_bad + gradient_panel_.n_bad == 0) return;
    const Operand &g = replay_.gradients[0], &v = problem_.values;
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index j = 0; j < place.n_columns; ++j) {
        if (!(value_panels_.bad[j] | gradient_panel_.bad[r])) continue;
        value_product_[r * expression_.stride() + j] =
            direct_score<T, Linear>(static_cast<const T*>(g.data) + (place.first_row + r) * g.stride[0], g.stride[1],
                                    static_cast<const T*>(v.data) + (place.first_column + j) * v.stride[0], v.stride[1], n_values_);
      }
  }

  consumers::RowGradient<T> row_gradient(Index i, Index r, bool takes_values) const {
    const auto at = [&](const Operand& x, Index c = 0) {
      return x.data == nullptr ? T(0) : static_cast<const T*>(x.data)[i * x.stride[0] + c * x.stride[1]];
    };
    consumers::RowGradient<T> x;
    for (int n = takes_values ? 1 : 0; n < kMaxResults; ++n) {
      x.gradient[n] = at(replay_.gradients[n]);
      x.saved[n] = at(replay_.saved[n]);
    }
    if (!takes_values) return x;
    x.value_product = value_product_ + r * expression_.stride();
    if (replay_.saved[0].data == nullptr) return x;
    double delta = 0;
    for (Index c = 0; c < n_values_; ++c) delta += static_cast<double>(at(replay_.gradients[0], c)) * at(replay_.saved[0], c);
    x.delta = static_cast<T>(delta);
    return x;
  }

  // From the gradient of the expression to those of its operands, last step first. gradients_[level] belongs to the score at that height
  // of the stack.
  void backward(const StripPlace& place) {
    int level = 0;
    for (int n = problem_.n_steps - 1; n >= 0; --n) {
      const Step& step = problem_.steps[n];
      if (step.kind == StepKind::kJoin) {
        JoinList::visit(step.id, [&]<class Join>() { backward_join<Join>(n, place, level); });
        ++level;
      } else if (step.kind == StepKind::kSelect) {
        backward_select(step, place, level);
        ++level;
      } else if (step.kind == StepKind::kTable) {
        if (replay_.tables[step.slot[0]] != nullptr)
          TableList::visit(step.id, [&]<class Table>() { pull_table<Table>(step, place, gradients_[level]); });
        --level;
      } else if (step.kind == StepKind::kNode) {
        NodeList::visit(step.id, [&]<class Node>() { backward_node<Node>(n, place, gradients_[level]); });
      } else {
        clear_excluded(place, gradients_[level]);
        if (pulls_[n].wanted) SourceList::visit(step.id, [&]<class Source>() { pull<Source>(n, place, gradients_[level]); });
        --level;
      }
    }
  }

  void clear_excluded(const StripPlace& place, T* gradient) const {
    if (keep_ != nullptr) fill_excluded(gradient, keep_, expression_.stride(), place.n_rows, place.width, T(0));
  }

  template <class Join>
  void backward_join(int n, const StripPlace& place, int level) {
    const StepMemory<T>& memory = expression_.step(n);
    const Index stride = expression_.stride();
    for (Index r = 0; r < kTileRows; ++r) {
      T *first = gradients_[level] + r * stride, *second = gradients_[level + 1] + r * stride;
      const T *s = expression_.step(memory.input[0]).scores + r * stride, *t = expression_.step(memory.input[1]).scores + r * stride;
      for (Index j = 0; j < place.width; ++j) {
        const T g = first[j];
        const bool some = r < place.n_rows;
        second[j] = some ? g * Join::derivative_second(s[j], t[j]) : T(0);
        first[j] = some ? g * Join::derivative_first(s[j], t[j]) : T(0);
      }
    }
  }

  // Each pair's gradient goes to the score that it was taken from.
  void backward_select(const Step& step, const StripPlace& place, int level) {
    const unsigned char* choice = expression_.choice(step);
    const Index stride = expression_.stride();
    for (Index r = 0; r < kTileRows; ++r)
      for (Index k = r * stride; k < r * stride + place.width; ++k) {
        const T g = r < place.n_rows ? gradients_[level][k] : T(0);
        gradients_[level + 1][k] = choice[k] ? T(0) : g;
        gradients_[level][k] = choice[k] ? g : T(0);
      }
  }

  template <class Table>
  void pull_table(const Step& step, const StripPlace& place, T* gradient) {
    clear_excluded(place, gradient);
    const TableArgument argument = expression_.table_argument(step);
    const Index size = problem_.operands[step.slot[0]].size[0];
    double* sums = replay_.tables[step.slot[0]];
    for (Index r = 0; r < place.n_rows; ++r)
      for (Index j = 0; j < place.n_columns; ++j) {
        const Index index = Expression<T>::template table_index<Table>(argument, step, place.first_row + r, place.first_column + j, size);
        if (index >= 0) sums[index] += gradient[r * expression_.stride() + j];
      }
  }

  template <class Node>
  void backward_node(int n, const StripPlace& place, T* gradient) {
    const Step& step = problem_.steps[n];
    const StepMemory<T>& memory = expression_.step(n);
    PullMemory<T>& pull = pulls_[n];
    const Index stride = expression_.stride();
    const T b = expression_.second_argument(step);
    clear_excluded(place, gradient);
    double scalar_total = 0;
    for (Index r = 0; r < place.n_rows; ++r) {
      const T *s = expression_.step(memory.input[0]).scores + r * stride, *out = memory.scores + r * stride;
      T* g = gradient + r * stride;
      if constexpr (Node::kInfo.signature[0] == 'c') {
        const T* a = memory.column_argument;
        if (pull.wanted)
          for (Index j = 0; j < place.width; ++j)
            pull.column_sums[j] += g[j] == T(0) ? T(0) : g[j] * Node::argument_derivative(s[j], out[j], a[j], b);
        for (Index j = 0; j < place.width; ++j) g[j] *= Node::derivative(s[j], out[j], a[j], b);
      } else {
        const T a = expression_.row_argument(step, place.first_row + r);
        if (pull.wanted) {
          T sum = T(0);
#pragma omp simd reduction(+ : sum)
          for (Index j = 0; j < place.width; ++j) sum += g[j] == T(0) ? T(0) : g[j] * Node::argument_derivative(s[j], out[j], a, b);
          if (Node::kInfo.signature[0] == 'r')
            pull.row_sums[place.first_row - block_begin_ + r] += sum;
          else
            scalar_total += sum;
        }
        for (Index j = 0; j < place.width; ++j) g[j] *= Node::derivative(s[j], out[j], a, b);
      }
    }
    if (pull.wanted && Node::kInfo.signature[0] == 's') replay_.scalars[step.slot[0]] += scalar_total;
  }

  template <class Source>
  void pull(int n, const StripPlace& place, T* gradient) {
    const Index stride = expression_.stride(), n_features = problem_.operands[problem_.steps[n].slot[0]].size[1];
    const StepMemory<T>& memory = expression_.step(n);
    PullMemory<T>& sums = pulls_[n];
    double* row_sums = sums.row_sums + (place.first_row - block_begin_) * n_features;
    pull_direct<Source>(n, place, gradient, row_sums);
    if (sums.y_rows == nullptr) {
      pull_strip<T, Source>(memory.rows.panels, memory.columns.panels, n_features, place.width, gradient, stride, row_sums,
                            sums.column_sums, tile_);
      return;
    }
    pull_products<T>(memory.rows.panels, sums.y_rows, sums.y_stride, n_features, place.width, gradient, stride, sums.product_scratch,
                     row_sums, sums.column_sums, tile_);
    if (!memory.gram) return;
    for (Index r = 0; r < place.n_rows; ++r) {
      T total = T(0);
#pragma omp simd reduction(+ : total)
      for (Index j = 0; j < place.width; ++j) total += gradient[r * stride + j];
      sums.row_total[place.first_row - block_begin_ + r] += total;
      for (Index j = 0; j < place.width; ++j) sums.column_total[j] += gradient[r * stride + j];
    }
  }

  // Pairs that were evaluated from the original features are pulled from them, too. In Gram form the sums hold the products alone, so
  // that a pull p enters them as -p / 2 (see flush_rows).
  template <class Source>
  void pull_direct(int n, const StripPlace& place, T* gradient, double* row_sums) {
    const Step& step = problem_.steps[n];
    StepMemory<T>& memory = expression_.step(n);
    const Operand &rows = problem_.operands[step.slot[0]], &columns = problem_.operands[step.slot[1]];
    const Index n_features = rows.size[1];
    const T factor = memory.gram ? T(-0.5) : T(1);
    for (Index k = 0; k < memory.n_direct; ++k) {
      const DirectPair pair = memory.direct[k];
      T& entry = gradient[pair.row * expression_.stride() + pair.column];
      if (entry == T(0)) continue;
      const T g = entry * factor;
      entry = T(0);
      const T* x = static_cast<const T*>(rows.data) + (place.first_row + pair.row) * rows.stride[0];
      const T* y = static_cast<const T*>(columns.data) + (place.first_column + pair.column) * columns.stride[0];
      for (Index d = 0; d < n_features; ++d) {
        const T xd = x[d * rows.stride[1]], yd = y[d * columns.stride[1]];
        row_sums[d * kTileRows + pair.row] += g * Source::pull(xd, yd);
        pulls_[n].column_sums[d * tile_ + pair.column] += g * Source::pull_column(xd, yd);
      }
    }
  }

  // Squared distances in Gram form: dX = 2 (x sum_j G - G Y), rows relative to the centre.
  void flush_rows(Index n_rows) {
    for (int n = 0; n < problem_.n_steps; ++n) {
      const Step& step = problem_.steps[n];
      const PullMemory<T>& sums = pulls_[n];
      const Result& to = replay_.rows[step.slot[0] < 0 ? 0 : step.slot[0]];
      if (sums.row_sums == nullptr || to.data == nullptr) continue;
      const bool source = step.kind == StepKind::kSource;
      const Operand& from = problem_.operands[step.slot[0]];
      const Index n_features = source ? from.size[1] : 1;
      const T* centre = static_cast<const T*>(problem_.centres[n]);
      for (Index i = 0; i < n_rows; ++i)
        for (Index d = 0; d < n_features; ++d) {
          double sum = source ? sums.row_sums[(i / kTileRows * n_features + d) * kTileRows + i % kTileRows] : sums.row_sums[i];
          if (centre != nullptr) sum = 2 * (moved(from, block_begin_ + i, d, centre) * sums.row_total[i] - sum);
          static_cast<T*>(to.data)[(block_begin_ + i) * to.stride[0] + d * to.stride[1]] += static_cast<T>(sum);
        }
    }
  }

  void flush_columns(Index first, Index n_columns) {
    for (int n = 0; n < problem_.n_steps; ++n) {
      const Step& step = problem_.steps[n];
      const PullMemory<T>& sums = pulls_[n];
      if (sums.column_sums == nullptr) continue;
      const bool source = step.kind == StepKind::kSource;
      const int slot = source ? step.slot[1] : step.slot[0];
      const Result& to = replay_.columns[slot];
      if (to.data == nullptr) continue;
      const Index n_features = source ? problem_.operands[slot].size[1] : 1;
      const T* centre = static_cast<const T*>(problem_.centres[n]);
      for (Index j = 0; j < n_columns; ++j)
        for (Index d = 0; d < n_features; ++d) {
          T sum = sums.column_sums[d * tile_ + j];
          if (centre != nullptr)
            sum = static_cast<T>(2 * (moved(problem_.operands[slot], first + j, d, centre) * sums.column_total[j] - sum));
          static_cast<T*>(to.data)[(first + j) * to.stride[0] + d * to.stride[1]] += sum;
        }
    }
    if (value_sums_ == nullptr) return;
    const Result& to = replay_.values;
    for (Index j = 0; j < n_columns; ++j)
      for (Index c = 0; c < n_values_; ++c)
        static_cast<T*>(to.data)[(first + j) * to.stride[0] + c * to.stride[1]] += value_sums_[c * tile_ + j];
  }

  // Feature d of a row relative to the centre; 0 where it is not finite (its pairs were pulled directly).
  static double moved(const Operand& from, Index row, Index d, const T* centre) {
    const T value = static_cast<const T*>(from.data)[row * from.stride[0] + d * from.stride[1]] - centre[d];
    return value - value == T(0) ? value : T(0);
  }

  const Problem& problem_;
  const Replay& replay_;
  Expression<T> expression_;
  Index tile_;
  Index n_values_ = 0;
  PullMemory<T> pulls_[kMaxSteps];
  T* gradients_[kMaxDepth] = {};
  Packed<T> value_panels_, gradient_panel_;
  T* value_product_ = nullptr;
  T* value_sums_ = nullptr;  // [C][tile]
  const unsigned char* keep_ = nullptr;
  Index block_begin_ = 0;
};

template <class T>
Index replay_workspace(const Problem& problem, const Replay& replay) {
  Arena arena(nullptr);
  ReplayPass<T> pass(problem, replay, arena);
  return arena.used();
}

template <class T>
Index replay(const Problem& problem, const Replay& replay, Index row_begin, Index row_end, Index column_begin, Index column_end,
             void* workspace) {
  Arena arena(workspace);
  ReplayPass<T> pass(problem, replay, arena);
  visit_consumer<T>(problem, [&]<class Consumer>() {
    for (Index i = row_begin; i < row_end; i += problem.tiles.block_rows)
      pass.template run<Consumer>(i, least(i + problem.tiles.block_rows, row_end), column_begin, column_end);
  });
  return pass.n_evaluated();
}

}  // namespace torchpairwise::cpu::TP_ISA
