#include "ops/validate.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "expr/list.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;
using c10::SymInt;

bool differ(const SymInt& a, const SymInt& b) {
  const std::optional<std::int64_t> x = a.maybe_as_int(), y = b.maybe_as_int();
  return x.has_value() && y.has_value() && *x != *y;
}

const char* role_text(Role role) {
  switch (role) {
    case Role::kRowFeatures:
      return "row features [*batch, N, D]";
    case Role::kColumnFeatures:
      return "column features [*batch, M, D]";
    case Role::kScalar:
      return "a scalar []";
    case Role::kRowVector:
      return "a row vector [*batch, N]";
    case Role::kColumnVector:
      return "a column vector [*batch, M]";
    case Role::kRowFlags:
      return "row flags [*batch, N]";
    case Role::kColumnFlags:
      return "column flags [*batch, M]";
    case Role::kRowLabels:
      return "row labels [*batch, N]";
    case Role::kColumnLabels:
      return "column labels [*batch, M]";
    case Role::kTable:
      return "a table [*batch, T]";
    case Role::kPairIndices:
      return "indices of pairs [*batch, N, M]";
    default:
      return "a parameter of a comparison";
  }
}

// The axis that the role's first core dimension runs along: 'N', 'M' or none.
char axis_of(Role role) {
  switch (role) {
    case Role::kRowFeatures:
    case Role::kRowVector:
    case Role::kRowFlags:
    case Role::kRowLabels:
    case Role::kPairIndices:
      return 'N';
    case Role::kColumnFeatures:
    case Role::kColumnVector:
    case Role::kColumnFlags:
    case Role::kColumnLabels:
      return 'M';
    default:
      return 0;
  }
}

class Validator {
 public:
  explicit Validator(const Arguments& arguments) : arguments_(arguments), program_(Program::parse(arguments.program)) {}

  Sizes run() {
    check_counts();
    check_dim();
    find_sizes();
    for (const Use& use : program_->uses()) check_use(use);
    check_features();
    check_tables();
    check_values();
    check_square();
    check_axis();
    return sizes_;
  }

 private:
  std::string who(const Use& use) const { return "operand " + std::to_string(use.slot) + " (" + role_text(use.role) + ")"; }
  const Tensor& operand(const Use& use) const { return arguments_.operands[use.slot]; }

  void check_counts() const {
    const auto n_operands = static_cast<int>(arguments_.operands.size()), n_constants = static_cast<int>(arguments_.constants.size());
    TORCH_CHECK_VALUE(n_operands == program_->n_slots(), "the program '", arguments_.program, "' has ", program_->n_slots(),
                      " operands, got ", n_operands);
    TORCH_CHECK_VALUE(n_constants == program_->n_constants(), "the program '", arguments_.program, "' has ", program_->n_constants(),
                      " constants, got ", n_constants);
    std::vector<int> dimensions(n_operands, -2);
    for (const Use& use : program_->uses()) {
      const int wanted = core_dimensions(use.role);
      int& known = dimensions[use.slot];
      TORCH_CHECK_VALUE(known == -2 || known == wanted, who(use), " is also used as a tensor with another number of dimensions");
      known = wanted;
    }
    for (int slot = 0; slot < n_operands; ++slot)
      TORCH_CHECK_VALUE(dimensions[slot] != -2, "operand ", slot, " is not used by the program '", arguments_.program, "'");
  }

  void check_dim() const {
    TORCH_CHECK_VALUE(arguments_.dim == -1 || arguments_.dim == -2, "dim of ", arguments_.consumer->name,
                      " must be -1 (over the columns) or -2 (over the rows), got ", arguments_.dim);
  }

  // N and M are those of the first operand that has them; all others are compared with it. The first features or table give the dtype.
  void find_sizes() {
    bool have_rows = false, have_columns = false;
    for (const Use& use : program_->uses()) {
      const char axis = axis_of(use.role);
      const Tensor& x = operand(use);
      if (first_ == nullptr && (core_dimensions(use.role) == 2 || use.role == Role::kTable)) first_ = &x;
      if (axis == 0) continue;
      const int n_core = core_dimensions(use.role);
      TORCH_CHECK_VALUE(x.dim() >= n_core, who(use), " has shape ", x.sym_sizes(), "; it needs at least ", n_core, " dimensions");
      bool& have = axis == 'N' ? have_rows : have_columns;
      if (!have) (axis == 'N' ? sizes_.n_rows : sizes_.n_columns) = x.sym_size(x.dim() - n_core);
      have = true;
      if (use.role == Role::kPairIndices && !have_columns) {
        sizes_.n_columns = x.sym_size(-1);
        have_columns = true;
      }
    }
    check_floating(arguments_.operands[0], "operand 0, whose dtype the results take,");
  }

  void check_use(const Use& use) {
    const Tensor& x = operand(use);
    check_type(use);
    const int n_core = core_dimensions(use.role);
    if (n_core < 0) return;
    TORCH_CHECK_VALUE(x.dim() >= n_core, who(use), " has shape ", x.sym_sizes(), ", which has too few dimensions");
    TORCH_CHECK_VALUE(use.role != Role::kScalar || x.dim() == 0, who(use), " has shape ", x.sym_sizes(), "; expected no dimension");
    if (const char axis = axis_of(use.role)) {
      const SymInt& expected = axis == 'N' ? sizes_.n_rows : sizes_.n_columns;
      TORCH_CHECK_VALUE(!differ(x.sym_size(x.dim() - n_core), expected), who(use), " has shape ", x.sym_sizes(), ", but ", axis, " is ",
                        expected, " here");
    }
    if (use.role == Role::kPairIndices)
      TORCH_CHECK_VALUE(!differ(x.sym_size(-1), sizes_.n_columns), who(use), " has shape ", x.sym_sizes(), ", but M is ", sizes_.n_columns,
                        " here");
    broadcast(x.sym_sizes().slice(0, x.dim() - n_core), who(use));
  }

  void check_type(const Use& use) const {
    const Tensor& x = operand(use);
    TORCH_CHECK_VALUE(x.device() == first_->device(), who(use), " is on ", x.device(), ", but the first features are on ", first_->device(),
                      "; move one of them");
    switch (use.role) {
      case Role::kParameter:
        return;
      case Role::kRowFlags:
      case Role::kColumnFlags:
        TORCH_CHECK_TYPE(x.scalar_type() == at::kBool, who(use), " must be bool, got ", x.scalar_type());
        return;
      case Role::kRowLabels:
      case Role::kColumnLabels:
      case Role::kPairIndices:
        TORCH_CHECK_TYPE(x.scalar_type() == at::kLong, who(use), " must be int64, got ", x.scalar_type());
        return;
      default:
        check_floating(x, who(use));
    }
  }

  void check_floating(const Tensor& x, const std::string& name) const {
    TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, name, " is ", x.scalar_type(),
                     "; the operations take float32 or float64. tp.lazy converts other dtypes");
    TORCH_CHECK_TYPE(x.scalar_type() == first_->scalar_type(), name, " is ", x.scalar_type(), ", but the first features are ",
                     first_->scalar_type(), "; convert one of them");
  }

  // Both sides of a source compare the same number of features. A function may take any two.
  void check_features() const {
    for (const Step& step : program_->steps()) {
      if (step.kind != StepKind::kSource) continue;
      const Tensor &x = arguments_.operands[step.slot[0]], &y = arguments_.operands[step.slot[1]];
      TORCH_CHECK_VALUE(!differ(x.sym_size(-1), y.sym_size(-1)), "operand ", step.slot[0], " has ", x.sym_size(-1),
                        " features a row and operand ", step.slot[1], " has ", y.sym_size(-1), "; they must agree");
    }
  }

  // A rule of places has one entry for each difference of its range.
  void check_tables() const {
    for (const Step& step : program_->steps()) {
      if (step.kind != StepKind::kTable || step.constant[1] < 0) continue;
      const double least = arguments_.constants[step.constant[0]], most = arguments_.constants[step.constant[1]];
      const Tensor& table = arguments_.operands[step.slot[0]];
      TORCH_CHECK_VALUE(least <= most && !differ(table.sym_size(-1), static_cast<std::int64_t>(most - least) + 1), "operand ", step.slot[0],
                        " (a table) has shape ", table.sym_sizes(), "; expected [*batch, ", most - least + 1,
                        "], one entry for each difference from ", least, " to ", most);
    }
  }

  void check_values() {
    if (!arguments_.consumer->takes_values) return;
    const Tensor& values = arguments_.values;
    TORCH_CHECK_VALUE(values.defined(), arguments_.consumer->name, " needs values");
    const bool rows = arguments_.dim == -2;
    const SymInt& expected = rows ? sizes_.n_rows : sizes_.n_columns;
    TORCH_CHECK_VALUE(values.dim() >= 2, "values has shape ", values.sym_sizes(), "; expected [*batch, ", expected, ", C]");
    TORCH_CHECK_VALUE(values.device() == first_->device(), "values is on ", values.device(), ", but the first features are on ",
                      first_->device(), "; move one of them");
    check_floating(values, "values");
    TORCH_CHECK_VALUE(!differ(values.sym_size(-2), expected), "values has shape ", values.sym_sizes(), "; expected [*batch, ", expected,
                      ", C]: one row for each ", rows ? "row (N)" : "column (M)", " of the scores");
    sizes_.n_values = values.sym_size(-1);
    broadcast(values.sym_sizes().slice(0, values.dim() - 2), "values");
  }

  // exclude_self is by index.
  void check_square() const {
    for (const MaskStep& step : program_->mask_steps()) {
      if (step.kind != MaskKind::kRule) continue;
      MaskList::visit(step.id, [&]<class Rule>() {
        if (std::is_same_v<Rule, OffDiagonal>)
          TORCH_CHECK_VALUE(!differ(sizes_.n_rows, sizes_.n_columns), "exclude_self needs as many rows as columns, got N = ", sizes_.n_rows,
                            " and M = ", sizes_.n_columns);
      });
    }
  }

  void check_axis() const {
    if (!is_reduction(*arguments_.consumer)) return;
    const bool rows = arguments_.dim == -2;
    const std::optional<std::int64_t> size = (rows ? sizes_.n_rows : sizes_.n_columns).maybe_as_int();
    const std::string axis = std::string("axis ") + std::to_string(arguments_.dim) + (rows ? " (N)" : " (M)");
    const bool bins = std::strstr(arguments_.consumer->arguments, "float low") != nullptr;
    if (bins)
      TORCH_CHECK_VALUE(arguments_.k > 0 && arguments_.low < arguments_.high && std::isfinite(arguments_.high - arguments_.low),
                        "histogram needs at least one bin and finite limits low < high, got ", arguments_.k, " bins from ", arguments_.low,
                        " to ", arguments_.high);
    const bool has_k = !bins && std::strstr(arguments_.consumer->arguments, "int k") != nullptr;
    if (has_k) {
      TORCH_CHECK_VALUE(arguments_.k >= 0, "k must not be negative, got ", arguments_.k);
      TORCH_CHECK_VALUE(!size || arguments_.k <= *size, "k is ", arguments_.k, ", but ", axis, " has size ", *size,
                        "; choose k <= ", *size);
    }
    const bool raises = arguments_.consumer->empty[0] == '\0' && !(has_k && arguments_.k == 0);
    TORCH_CHECK_VALUE(!raises || size != 0, arguments_.consumer->name, " over an empty axis: ", axis, " has size 0");
  }

  // sizes_.batch = broadcast of itself and `added`.
  void broadcast(c10::SymIntArrayRef added, const std::string& name) {
    std::vector<SymInt>& batch = sizes_.batch;
    if (added.size() > batch.size()) batch.insert(batch.begin(), added.size() - batch.size(), SymInt(1));
    for (std::size_t d = 0; d < added.size(); ++d) {
      SymInt& have = batch[batch.size() - 1 - d];
      const SymInt& size = added[added.size() - 1 - d];
      if (TORCH_GUARD_OR_FALSE(size.sym_eq(1))) continue;
      if (TORCH_GUARD_OR_FALSE(have.sym_eq(1))) {
        have = size;
        continue;
      }
      TORCH_CHECK_VALUE(!differ(size, have), name, " has batch dimensions ", added, ", which do not broadcast with ",
                        c10::SymIntArrayRef(batch));
      TORCH_SYM_CHECK(size.sym_eq(have), name, " has batch dimensions that do not broadcast with those of the other operands");
    }
  }

  const Arguments& arguments_;
  std::shared_ptr<const Program> program_;
  Sizes sizes_;
  const Tensor* first_ = nullptr;
};

}  // namespace

int core_dimensions(Role role) {
  switch (role) {
    case Role::kParameter:
      return -1;
    case Role::kRowFeatures:
    case Role::kColumnFeatures:
    case Role::kPairIndices:
      return 2;
    case Role::kScalar:
      return 0;
    default:
      return 1;
  }
}

Sizes validate(const Arguments& arguments) { return Validator(arguments).run(); }

std::vector<std::vector<SymInt>> result_sizes(const Arguments& arguments, const Sizes& sizes) {
  // Over dim -2 the results have one entry a column.
  const bool over_rows = arguments.dim == -2;
  const auto size_of = [&](char letter) -> SymInt {
    switch (letter) {
      case 'N':
        return over_rows ? sizes.n_columns : sizes.n_rows;
      case 'M':
        return over_rows ? sizes.n_rows : sizes.n_columns;
      case 'C':
        return sizes.n_values;
      case 'k':
        return arguments.k;
      case 'P':
        return sizes.n_rows.min(sizes.n_columns);
    }
    TORCH_INTERNAL_ASSERT(false, "unknown size '", letter, "' in the results of ", arguments.consumer->name);
  };
  std::vector<std::vector<SymInt>> out;
  for (const ResultInfo& result : results_of(*arguments.consumer)) {
    out.push_back(sizes.batch);
    for (const char letter : result.sizes) out.back().push_back(size_of(letter));
  }
  return out;
}

Sizes validate(const ReplayArguments& arguments) {
  const Sizes sizes = validate(arguments.forward);
  const ConsumerInfo& consumer = *arguments.forward.consumer;
  const std::vector<ResultInfo> results = results_of(consumer);
  TORCH_CHECK_VALUE(arguments.gradients.size() == results.size() && arguments.saved.size() == results.size(), "replay of ", consumer.name,
                    " needs one gradient and one saved entry for each of its ", results.size(), " results, got ",
                    arguments.gradients.size(), " and ", arguments.saved.size());
  const std::size_t n_inputs = inputs_of(arguments.forward).size();
  TORCH_CHECK_VALUE(arguments.needs.size() == n_inputs, "replay of ", consumer.name, " needs one entry of `needs` for each of its ",
                    n_inputs, " inputs, got ", arguments.needs.size());

  const std::vector<std::vector<SymInt>> expected = result_sizes(arguments.forward, sizes);
  const Tensor& first = arguments.forward.operands[0];
  const auto check = [&](const Tensor& x, std::size_t n, const char* name) {
    if (!x.defined()) return;
    bool fits = static_cast<std::size_t>(x.dim()) == expected[n].size() && x.device() == first.device();
    for (std::size_t d = 0; fits && d < expected[n].size(); ++d) fits = !differ(x.sym_size(static_cast<std::int64_t>(d)), expected[n][d]);
    fits &= x.scalar_type() == (results[n].is_index ? at::kLong : first.scalar_type());
    TORCH_CHECK_VALUE(fits, name, " ", n, " of ", consumer.name, " has shape ", x.sym_sizes(), " and dtype ", x.scalar_type(),
                      "; it must be as the result ", n, ", which has shape ", c10::SymIntArrayRef(expected[n]));
  };
  for (std::size_t n = 0; n < results.size(); ++n) {
    check(arguments.gradients[n], n, "gradient");
    check(arguments.saved[n], n, "saved result");
  }
  for (const char* digit = consumer.saved; *digit != '\0'; ++digit)
    TORCH_CHECK_VALUE(arguments.saved[*digit - '0'].defined(), "replay of ", consumer.name, " needs the saved result ", *digit);
  return sizes;
}

}  // namespace torchpairwise::ops
