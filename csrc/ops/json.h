// Writes JSON text: objects and lists of texts, numbers and booleans.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace torchpairwise::ops::json {

inline std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

template <class Value>
std::string value(const Value& x) {
  if constexpr (std::is_same_v<Value, bool>)
    return x ? "true" : "false";
  else if constexpr (std::is_arithmetic_v<Value>)
    return std::to_string(x);
  else
    return quote(x);
}

inline std::string list_of(const std::vector<std::string>& written) {
  std::string out = "[";
  for (const std::string& item : written) out += (out.size() > 1 ? ", " : "") + item;
  return out + "]";
}

class Object {
 public:
  template <class Value>
  Object& add(const std::string& name, const Value& x) {
    return add_written(name, value(x));
  }
  // A value that is JSON already.
  Object& add_written(const std::string& name, const std::string& written) { return add_fields(quote(name) + ": " + written); }
  // Fields that are JSON already: "a": 1, "b": 2.
  Object& add_fields(const std::string& written) {
    if (!written.empty()) text_ += (text_.empty() ? "" : ", ") + written;
    return *this;
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace torchpairwise::ops::json
