#include "expr/program.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "expr/list.h"
#include "source/list.h"

namespace torchpairwise {
namespace {

[[noreturn]] void fail(const std::string& step, const std::string& reason) {
  throw std::invalid_argument("program step '" + step + "': " + reason);
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

int parse_number(const std::string& step, const std::string& digits) {
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos)
    fail(step, "expected a slot such as 0 or a constant such as #0, got '" + digits + "'");
  return std::stoi(digits);
}

// Reads the arguments of a step or rule by its signature: # takes a constant, s either, every other letter a tensor.
template <class AnyStep>
void read_arguments(const std::string& text, const std::vector<std::string>& parts, const char* signature, AnyStep& step, int& n_slots,
                    int& n_constants) {
  const std::size_t expected = std::strlen(signature);
  if (parts.size() - 1 != expected) fail(text, "takes " + std::to_string(expected) + " arguments, got " + std::to_string(parts.size() - 1));
  int next_slot = 0, next_constant = 0;
  for (std::size_t i = 0; i < expected; ++i) {
    const std::string& argument = parts[i + 1];
    const bool is_constant = argument[0] == '#';
    if (is_constant != (signature[i] == '#') && signature[i] != 's')
      fail(text, std::string("argument ") + std::to_string(i + 1) + (is_constant ? " must be a tensor" : " must be a number"));
    const int value = parse_number(text, is_constant ? argument.substr(1) : argument);
    int16_t index = static_cast<int16_t>(value);
    if (is_constant) {
      step.constant[next_constant++] = index;
      n_constants = std::max(n_constants, value + 1);
    } else {
      step.slot[next_slot++] = index;
      n_slots = std::max(n_slots, value + 1);
    }
  }
}

// A column rule alone keeps its tensor in slot[1], so that MaskArgument's two sides are filled in the same way for every rule.
void place_column_rule(const char* signature, MaskStep& step) {
  if (std::strcmp(signature, "c") == 0) std::swap(step.slot[0], step.slot[1]);
}

const char* node_signature(int id) {
  const char* signature = "";
  NodeList::visit(id, [&]<class Node>() { signature = Node::kInfo.signature; });
  return signature;
}

const char* table_signature(int id) {
  const char* signature = "";
  TableList::visit(id, [&]<class Table>() { signature = Table::kInfo.signature; });
  return signature;
}

const char* rule_signature(int id) {
  const char* signature = "";
  MaskList::visit(id, [&]<class Rule>() { signature = Rule::kInfo.signature; });
  return signature;
}

}  // namespace

void Program::parse_choices(const std::string& text) {
  for (const std::string& word : words(text)) {
    if (word == "native" || word == "tiles") {
      choices_.backend = word == "native" ? Backend::kNative : Backend::kTiles;
    } else if (word == "fast") {
      choices_.fast = true;
    } else if (word.rfind("chunk=", 0) == 0 && word.size() > 6 && word.size() < 18 &&
               word.find_first_not_of("0123456789", 6) == std::string::npos) {
      choices_.chunk_size = std::stoll(word.substr(6));
    } else {
      fail(text, "expected native, tiles, fast or chunk=NUMBER before the colon, got '" + word + "'");
    }
  }
}

void Program::parse_step(const std::string& text) {
  const std::vector<std::string> parts = words(text);
  if (parts.empty()) fail(text, "is empty");
  const char* name = parts[0].c_str();
  Step step;
  if (parts[0] == "custom") {
    if (parts.size() < 4) fail(text, "expected: custom KEY rows columns {parameter}");
    step.kind = StepKind::kCustom;
    step.id = static_cast<int16_t>(custom_keys_.size());
    custom_keys_.push_back(parts[1]);
    std::vector<int> parameters;
    for (std::size_t i = 2; i < parts.size(); ++i) {
      const int slot = parse_number(text, parts[i]);
      n_slots_ = std::max(n_slots_, slot + 1);
      if (i < 4)
        step.slot[i - 2] = static_cast<int16_t>(slot);
      else
        parameters.push_back(slot);
    }
    custom_parameters_.push_back(std::move(parameters));
  } else if (const int source = SourceList::find(name); source >= 0) {
    step.kind = StepKind::kSource;
    step.id = static_cast<int16_t>(source);
    read_arguments(text, parts, "RC", step, n_slots_, n_constants_);
  } else if (const int table = TableList::find(name); table >= 0) {
    step.kind = StepKind::kTable;
    step.id = static_cast<int16_t>(table);
    read_arguments(text, parts, table_signature(table), step, n_slots_, n_constants_);
  } else if (parts[0] == "select") {
    if (parts.size() != 2) fail(text, "expected: select NUMBER-OF-MASK");
    step.kind = StepKind::kSelect;
    step.id = static_cast<int16_t>(parse_number(text, parts[1]));
  } else if (const int node = NodeList::find(name); node >= 0) {
    step.kind = StepKind::kNode;
    step.id = static_cast<int16_t>(node);
    read_arguments(text, parts, node_signature(node), step, n_slots_, n_constants_);
  } else if (const int join = JoinList::find(name); join >= 0) {
    step.kind = StepKind::kJoin;
    step.id = static_cast<int16_t>(join);
    read_arguments(text, parts, "", step, n_slots_, n_constants_);
  } else {
    fail(text, "unknown source, table, node or join");
  }
  steps_.push_back(step);
}

void Program::parse_mask(const std::string& text, std::vector<MaskStep>& steps) {
  const std::vector<std::string> parts = words(text);
  if (parts.empty()) fail(text, "is empty");
  MaskStep step;
  if (parts[0] == "and" || parts[0] == "or" || parts[0] == "not") {
    step.kind = parts[0] == "and" ? MaskKind::kAnd : (parts[0] == "or" ? MaskKind::kOr : MaskKind::kNot);
    read_arguments(text, parts, "", step, n_slots_, n_constants_);
  } else {
    step.id = static_cast<int16_t>(MaskList::find(parts[0].c_str()));
    if (step.id < 0) fail(text, "unknown mask rule");
    read_arguments(text, parts, rule_signature(step.id), step, n_slots_, n_constants_);
    place_column_rule(rule_signature(step.id), step);
  }
  steps.push_back(step);
}

void Program::check_depths(const std::string& text) {
  int depth = 0;
  for (const Step& step : steps_) {
    const bool takes_two = step.kind == StepKind::kJoin || step.kind == StepKind::kSelect;
    const int taken = takes_two ? 2 : (step.kind == StepKind::kNode ? 1 : 0);
    if (depth < taken) throw std::invalid_argument("program '" + text + "': a node or join stands before its scores");
    depth += 1 - taken;
    depth_ = std::max(depth_, depth);
    const auto n_masks = static_cast<int>(masks_.size());
    if (step.kind == StepKind::kSelect && (step.id < 1 || step.id >= n_masks || masks_[step.id].empty()))
      throw std::invalid_argument("program '" + text + "': a select names a mask that is not there");
  }
  bool one_each = depth == 1;
  for (const std::vector<MaskStep>& mask : masks_) {
    int height = 0;
    for (const MaskStep& step : mask) {
      const int taken = step.kind == MaskKind::kRule ? 0 : (step.kind == MaskKind::kNot ? 1 : 2);
      if (height < taken) throw std::invalid_argument("program '" + text + "': a mask combination stands before its rules");
      height += 1 - taken;
    }
    one_each &= height <= 1;
  }
  if (!one_each) throw std::invalid_argument("program '" + text + "': must leave one score, and each mask one answer");
}

std::shared_ptr<const Program> Program::parse(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::shared_ptr<const Program>> cache;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = cache.find(text); found != cache.end()) return found->second;
  }
  auto program = std::make_shared<Program>();
  std::string body = text;
  if (const std::size_t colon = text.find(": "); colon != std::string::npos) {
    program->parse_choices(text.substr(0, colon));
    body = text.substr(colon + 2);
  }
  const std::vector<std::string> parts = split(body, " | ");
  for (const std::string& step : split(parts[0], "; ")) program->parse_step(step);
  program->masks_.resize(std::max<std::size_t>(1, parts.size() - 1));
  for (std::size_t n = 1; n < parts.size(); ++n)
    for (const std::string& step : split(parts[n], "; "))
      if (step != "all") program->parse_mask(step, program->masks_[n - 1]);
  program->check_depths(text);

  constexpr std::size_t kMaxCached = 4096;  // a program that changes with every call must not grow the process
  const std::lock_guard<std::mutex> lock(mutex);
  if (cache.size() >= kMaxCached) cache.clear();
  return cache.emplace(text, std::move(program)).first->second;
}

Program Program::transposed() const {
  Program out = *this;
  for (Step& step : out.steps_) {
    if (step.kind == StepKind::kSource || step.kind == StepKind::kCustom) std::swap(step.slot[0], step.slot[1]);
    if (step.kind == StepKind::kCustom || step.kind == StepKind::kTable) step.swapped = !step.swapped;
    if (step.kind != StepKind::kNode) continue;
    NodeList::visit(step.id, [&]<class Node>() { step.id = static_cast<int16_t>(NodeList::find(Node::kInfo.transposed)); });
  }
  out.masks_transposed_ = !masks_transposed_;
  return out;
}

std::vector<Use> Program::uses() const {
  std::vector<Use> out;
  for (const Step& step : steps_) {
    if (step.kind == StepKind::kSource || step.kind == StepKind::kCustom) {
      out.push_back({step.slot[0], Role::kRowFeatures});
      out.push_back({step.slot[1], Role::kColumnFeatures});
    }
    if (step.kind == StepKind::kCustom)
      for (const int slot : custom_parameters_[step.id]) out.push_back({slot, Role::kParameter});
    if (step.kind == StepKind::kTable) {
      out.push_back({step.slot[0], Role::kTable});
      if (step.slot[2] < 0) {
        out.push_back({step.slot[1], Role::kPairIndices});
      } else {
        out.push_back({step.slot[1], step.swapped ? Role::kColumnLabels : Role::kRowLabels});
        out.push_back({step.slot[2], step.swapped ? Role::kRowLabels : Role::kColumnLabels});
      }
    }
    if (step.kind == StepKind::kNode && step.slot[0] >= 0) {
      const char letter = node_signature(step.id)[0];
      out.push_back({step.slot[0], letter == 'r' ? Role::kRowVector : (letter == 'c' ? Role::kColumnVector : Role::kScalar)});
    }
  }
  const bool t = masks_transposed_;
  for (const std::vector<MaskStep>& mask : masks_)
    for (const MaskStep& step : mask) {
      if (step.kind != MaskKind::kRule) continue;
      const bool labels = rule_signature(step.id)[0] == 'R';
      if (step.slot[0] >= 0)
        out.push_back({step.slot[0], labels ? (t ? Role::kColumnLabels : Role::kRowLabels) : (t ? Role::kColumnFlags : Role::kRowFlags)});
      if (step.slot[1] >= 0)
        out.push_back({step.slot[1], labels ? (t ? Role::kRowLabels : Role::kColumnLabels) : (t ? Role::kRowFlags : Role::kColumnFlags)});
    }
  return out;
}

}  // namespace torchpairwise
