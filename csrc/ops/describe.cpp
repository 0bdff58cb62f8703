// describe(): every record of the library as JSON. Python, the documentation and the tests read names and formulas from here.
#include <torch/library.h>

#include <sstream>

#include "consumer/info.h"
#include "cpu/kernels.h"
#include "expr/list.h"
#include "metric/metrics.h"
#include "ops/json.h"
#include "source/list.h"

namespace torchpairwise::ops {
namespace {

using json::Object;
using Texts = std::vector<std::string>;

const char* form_name(Form form) {
  switch (form) {
    case Form::kProduct:
      return "product";
    case Form::kDifference:
      return "difference";
    case Form::kGramOrDifference:
      return "gram or difference";
  }
  return "";
}

std::string sources() {
  Texts out;
  SourceList::for_each([&]<class Source>() {
    const SourceInfo& info = Source::kInfo;
    out.push_back(Object()
                      .add("name", info.name)
                      .add("formula", info.formula)
                      .add("form", form_name(info.form))
                      .add("symmetric", info.symmetric)
                      .add("zero_diagonal", info.zero_diagonal)
                      .text());
  });
  return json::list_of(out);
}

std::string nodes() {
  Texts out;
  NodeList::for_each([&]<class Node>() {
    const NodeInfo& info = Node::kInfo;
    out.push_back(Object()
                      .add("name", info.name)
                      .add("signature", info.signature)
                      .add("transposed", info.transposed)
                      .add("formula", info.formula)
                      .text());
  });
  return json::list_of(out);
}

std::string joins() {
  Texts out;
  JoinList::for_each(
      [&]<class Join>() { out.push_back(Object().add("name", Join::kInfo.name).add("formula", Join::kInfo.formula).text()); });
  return json::list_of(out);
}

std::string masks() {
  Texts out;
  MaskList::for_each([&]<class Rule>() {
    const MaskInfo& info = Rule::kInfo;
    out.push_back(Object().add("name", info.name).add("signature", info.signature).add("formula", info.formula).text());
  });
  return json::list_of(out);
}

std::string tables() {
  Texts out;
  TableList::for_each([&]<class Table>() {
    const TableInfo& info = Table::kInfo;
    out.push_back(Object().add("name", info.name).add("signature", info.signature).add("formula", info.formula).text());
  });
  return json::list_of(out);
}

std::string parameters(const MetricInfo& metric) {
  Texts out;
  for (const ParameterInfo& parameter : metric.parameters)
    if (parameter.name != nullptr)
      out.push_back(Object().add("name", parameter.name).add("value", parameter.value).add("meaning", parameter.meaning).text());
  return json::list_of(out);
}

std::string aliases(const MetricInfo& metric) {
  Texts out;
  std::istringstream words(metric.aliases);
  for (std::string word; words >> word;) out.push_back(json::quote(word));
  return json::list_of(out);
}

std::string metrics() {
  Texts out;
  for (const MetricInfo& metric : kMetrics)
    out.push_back(Object()
                      .add("name", metric.name)
                      .add_written("aliases", aliases(metric))
                      .add("kind", metric.kind)
                      .add("transform", metric.transform == RowTransform::kNormalize ? "normalize" : "none")
                      .add("source", metric.source)
                      .add("program", metric.program)
                      .add_written("parameters", parameters(metric))
                      .add("symmetric", metric.symmetric)
                      .add("zero_diagonal", metric.zero_diagonal)
                      .add("formula", metric.formula)
                      .text());
  return json::list_of(out);
}

std::string consumers() {
  Texts out;
  for (const ConsumerInfo* info : kConsumers)
    out.push_back(Object()
                      .add("name", info->name)
                      .add("formula", info->formula)
                      .add("arguments", info->arguments)
                      .add("returns", info->returns)
                      .add("results", info->results)
                      .add("saved", info->saved)
                      .add("takes_values", info->takes_values)
                      .add("differentiable", info->differentiable)
                      .add("empty", info->empty)
                      .add("fused", cpu::kernels<float>().find_consumer(info->name) >= 0 || info == &kDenseInfo)
                      .text());
  return json::list_of(out);
}

constexpr const char* kBuildInfo =
#include "build_info.inc"
    ;

std::string describe() {
  return Object()
      .add_written("sources", sources())
      .add_written("nodes", nodes())
      .add_written("joins", joins())
      .add_written("masks", masks())
      .add_written("tables", tables())
      .add_written("metrics", metrics())
      .add_written("consumers", consumers())
      .add_written("build", kBuildInfo)
      .text();
}

}  // namespace

TORCH_LIBRARY_IMPL(torchpairwise, CompositeImplicitAutograd, m) { m.impl("describe", &describe); }

}  // namespace torchpairwise::ops
