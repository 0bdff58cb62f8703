// The text of an expression, parsed. Host only; kernels see the plain steps.
//
//   program := [choices ": "] step {"; " step} {" | " mask {"; " mask}}
//   choices := words of: "native" or "tiles" (the path; auto without), "chunk=NUMBER" (tile limit of the tensor path), "fast" (plain
//              expansion of distances allowed)
//   step    := name {" " argument}          "sqeuclidean 0 1; scale #0; exp; add_rows 2"
//              "select 1" takes its pairs by the second mask
//   mask    := rule {" " argument} | "and" | "or" | "not"      "causal #1; rows 3; and"
//   argument:= slot of a tensor operand (3) | index of a constant (#0)
//
// Both lists are in postfix order: sources and rules push, nodes change the last score, joins and combinations take the last two.
// The first mask leaves pairs out, the others serve selects; a first mask that leaves none out is written `all`.
// A custom comparison is written `custom KEY rows columns {parameter}`, its key without spaces. Masks leave pairs out of the whole
// expression: a consumer treats them as absent.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "expr/step.h"

namespace torchpairwise {

enum class Backend : std::uint8_t { kAuto, kNative, kTiles };

// What the caller chose; it never changes a value beyond rounding, except `fast`.
struct Choices {
  Backend backend = Backend::kAuto;
  Index chunk_size = 0;  // 0: the plan decides
  bool fast = false;
};

struct Use {
  int slot;
  Role role;
};

class Program {
 public:
  // Parses and checks; the result is cached by text. Throws std::invalid_argument that names the step and what was expected.
  static std::shared_ptr<const Program> parse(const std::string& text);

  // The same pairs with rows and columns exchanged. Mask steps are left as written: see masks_transposed().
  Program transposed() const;

  const Choices& choices() const { return choices_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<MaskStep>& mask_steps() const { return masks_[0]; }
  // All masks: the first leaves pairs out, the others belong to selects.
  const std::vector<std::vector<MaskStep>>& masks() const { return masks_; }
  // True if rules must be asked for (j, i) in place of (i, j).
  bool masks_transposed() const { return masks_transposed_; }
  bool has_custom() const { return !custom_keys_.empty(); }
  const std::vector<std::string>& custom_keys() const { return custom_keys_; }
  const std::vector<std::vector<int>>& custom_parameters() const { return custom_parameters_; }
  // Every use of an operand in the order of the text (a slot may have several), as transposed().
  std::vector<Use> uses() const;
  int n_slots() const { return n_slots_; }
  int n_constants() const { return n_constants_; }
  int depth() const { return depth_; }  // scores held at a time

 private:
  void parse_choices(const std::string& text);
  void parse_step(const std::string& text);
  void parse_mask(const std::string& text, std::vector<MaskStep>& steps);
  void check_depths(const std::string& text);

  Choices choices_;
  std::vector<Step> steps_;
  std::vector<std::vector<MaskStep>> masks_{1};
  std::vector<std::string> custom_keys_;
  std::vector<std::vector<int>> custom_parameters_;
  bool masks_transposed_ = false;
  int n_slots_ = 0, n_constants_ = 0, depth_ = 0;
};

}  // namespace torchpairwise
