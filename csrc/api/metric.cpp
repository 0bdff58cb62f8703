#include "api/metric.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "expr/list.h"
#include "metric/metrics.h"

namespace torchpairwise::ops {
namespace {

using at::Tensor;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

// Insertions, deletions and replacements that turn a into b.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1])});
      corner = above;
    }
  }
  return row[b.size()];
}

const MetricInfo& find_metric(const std::string& name) {
  std::vector<std::string> names, all;
  for (const MetricInfo& info : kMetrics) {
    std::vector<std::string> known = words_of(info.aliases);
    known.insert(known.begin(), info.name);
    if (std::find(known.begin(), known.end(), name) != known.end()) return info;
    names.emplace_back(info.name);
    all.insert(all.end(), known.begin(), known.end());
  }
  TORCH_CHECK_VALUE(false, "metric='", name, "' is unknown", suggestion(name, all), ". The metrics are ", listed(names));
}

// A parameter as a number, or as a tensor of the features' dtype: 0-dim, or [D] for gamma.
Parameter checked(const Parameter& value, const std::string& name, const Tensor& features) {
  if (!value.is_tensor()) return value;
  const Tensor& x = value.tensor();
  if (x.numel() == 1 && x.dim() <= 1) return x.reshape({}).to(features.options());
  TORCH_CHECK_VALUE(name == "gamma" && x.dim() == 1 && x.size(0) == features.size(-1), name, " has shape ", x.sizes(),
                    "; expected a number, a 0-dim tensor", name == "gamma" ? " or a vector [D]" : "");
  return x.to(features.options());
}

// gamma = 1 / (2 lengthscale^2)
Options without_lengthscale(Options options) {
  const auto found = options.find("lengthscale");
  if (found == options.end()) return options;
  TORCH_CHECK_VALUE(options.count("gamma") == 0, "gamma and lengthscale were both given; gamma = 1 / (2 lengthscale^2), give one");
  const Parameter& x = found->second;
  const Parameter gamma = x.is_tensor() ? Parameter(0.5 / x.tensor().square()) : Parameter(0.5 / (x.number() * x.number()));
  options.erase(found);
  options.emplace("gamma", gamma);
  return options;
}

// Values of the metric's parameters: those given, and defaults.
Options parameters_of(const MetricInfo& info, const Options& given, const Tensor& features) {
  const bool is_width = info.parameters[0].meaning == kGamma.meaning;
  const Options options = is_width ? without_lengthscale(given) : given;
  std::vector<std::string> accepted;
  Options values;
  for (const ParameterInfo& parameter : info.parameters) {
    if (parameter.name == nullptr) break;
    accepted.emplace_back(parameter.name);
    if (const auto found = options.find(parameter.name); found != options.end()) {
      values.emplace(parameter.name, checked(found->second, parameter.name, features));
      continue;
    }
    TORCH_CHECK_VALUE(*parameter.value != '\0', "metric '", info.name, "' needs the option ", parameter.name, ": ", parameter.meaning);
    const double n_features = static_cast<double>(std::max<std::int64_t>(1, features.size(-1)));
    values.emplace(parameter.name, std::strcmp(parameter.value, "1/D") == 0 ? 1.0 / n_features : std::stod(parameter.value));
  }
  if (is_width) accepted.emplace_back("lengthscale");
  for (const auto& [name, value] : options)
    TORCH_CHECK_TYPE(values.count(name) == 1, "metric '", info.name, "' has no option '", name, "'; it takes ",
                     accepted.empty() ? "no options" : listed(accepted));
  return values;
}

struct Features {
  Tensor rows, columns;
};

// One width a feature (ARD): gamma moves into the features, with gradient 0 where a width is 0.
Features scaled(const MetricInfo& info, const Features& x, const Tensor& gamma) {
  TORCH_CHECK_VALUE(std::strcmp(info.source, "linear") != 0, "gamma is a vector; metric '", info.name, "' takes one number");
  Tensor factor = gamma;
  if (std::strcmp(info.source, "sqeuclidean") == 0) {
    const Tensor positive = gamma.gt(0);
    factor = gamma.masked_fill(positive.logical_not(), 1).sqrt().masked_fill(positive.logical_not(), 0);
  }
  const Tensor rows = x.rows * factor;
  return {rows, x.columns.is_same(x.rows) ? rows : x.columns * factor};
}

// Unit rows whatever their scale, zero rows staying zero; `zero_rows` gets the vector that is 1/2 at zero rows.
Tensor normalized(const Tensor& x, Options& values, const char* zero_rows) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = 1;
  const Tensor largest = x.size(-1) > 0 ? x.detach().abs().amax(-1, true) : at::zeros(sizes, x.options());
  const Tensor zero = largest.eq(0), unit = x / largest.masked_fill(zero, 1);
  const Tensor norm = unit.square().sum(-1, true).masked_fill(zero, 1).sqrt();
  values.emplace(zero_rows, zero.squeeze(-1).to(x.scalar_type()) * 0.5);
  return (unit / norm).masked_fill(zero, 0);
}

ProgramStep parsed(const std::string& text, const Options& values) {
  const std::vector<std::string> words = words_of(text);
  ProgramStep step{words[0], {}, {}};
  for (std::size_t n = 1; n < words.size(); ++n) {
    const bool negative = words[n][0] == '-';
    const auto found = values.find(words[n].substr(negative));
    const Parameter value = found == values.end() ? Parameter(std::stod(words[n])) : (negative ? -found->second : found->second);
    TORCH_CHECK_TYPE(!value.is_tensor() || std::strchr(node_signature(step.word).c_str(), '#') == nullptr, words[n],
                     " is a tensor; expected a number");
    if (value.is_tensor())
      step.tensors.push_back(value.tensor());
    else
      step.numbers.push_back(value.number());
  }
  return step;
}

}  // namespace

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const std::size_t distance = edits(name, candidate); distance < least) {
      least = distance;
      nearest = candidate;
    }
  return nearest.empty() ? "" : ". Did you mean '" + nearest + "'?";
}

std::string node_signature(const std::string& name) {
  std::vector<std::string> known;
  const char* signature = nullptr;
  NodeList::for_each([&]<class Node>() {
    known.emplace_back(Node::kInfo.name);
    if (name == Node::kInfo.name) signature = Node::kInfo.signature;
  });
  TORCH_CHECK_VALUE(signature != nullptr, "node '", name, "' is unknown", suggestion(name, known), ". The nodes are ", listed(known));
  return signature;
}

std::vector<ProgramStep> lower_metric(const Tensor& rows, const Tensor& columns, const std::string& metric, const Options& options) {
  const MetricInfo& info = find_metric(metric);
  TORCH_CHECK_VALUE(rows.size(-1) == columns.size(-1), "X has ", rows.size(-1), " features and Y has ", columns.size(-1),
                    "; both need the same D");
  Options values = parameters_of(info, options, rows);
  Features x{rows, columns};
  if (const auto gamma = values.find("gamma"); gamma != values.end() && gamma->second.is_tensor() && gamma->second.tensor().dim() == 1) {
    x = scaled(info, x, gamma->second.tensor());
    gamma->second = 1.0;
  }
  if (info.transform == RowTransform::kNormalize) {
    const bool same = columns.is_same(rows);
    x.rows = normalized(x.rows, values, "zero_rows");
    x.columns = same ? x.rows : normalized(x.columns, values, "zero_columns");
    if (same) values.emplace("zero_columns", values.at("zero_rows"));
  }
  std::vector<ProgramStep> steps{{info.source, {x.rows, x.columns}, {}}};
  std::istringstream program(info.program);
  for (std::string text; std::getline(program, text, ';');) steps.push_back(parsed(text, values));
  return steps;
}

}  // namespace torchpairwise::ops
