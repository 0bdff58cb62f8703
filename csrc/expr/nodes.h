// The nodes. Contract and laws: concept.h. Their names are listed in list.h; the same steps as tensor operations in aten/nodes.cpp.
#pragma once

#include "core/math.h"
#include "expr/concept.h"

namespace torchpairwise {

struct Scale {
  static constexpr NodeInfo kInfo{"scale", "s", "scale", "s * a"};
  template <class T>
  TP_HD static T forward(T s, T a, T) {
    return s * a;
  }
  template <class T>
  TP_HD static T derivative(T, T, T a, T) {
    return a;
  }
  template <class T>
  TP_HD static T argument_derivative(T s, T, T, T) {
    return s;
  }
};

struct Shift {
  static constexpr NodeInfo kInfo{"shift", "s", "shift", "s + a"};
  template <class T>
  TP_HD static T forward(T s, T a, T) {
    return s + a;
  }
  template <class T>
  TP_HD static T derivative(T, T, T, T) {
    return T(1);
  }
  template <class T>
  TP_HD static T argument_derivative(T, T, T, T) {
    return T(1);
  }
};

struct AddRows : Shift {
  static constexpr NodeInfo kInfo{"add_rows", "r", "add_columns", "s + a_i"};
};

struct AddColumns : Shift {
  static constexpr NodeInfo kInfo{"add_columns", "c", "add_rows", "s + a_j"};
};

struct WeightRows : Scale {
  static constexpr NodeInfo kInfo{"weight_rows", "r", "weight_columns", "s * a_i"};
};

struct WeightColumns : Scale {
  static constexpr NodeInfo kInfo{"weight_columns", "c", "weight_rows", "s * a_j"};
};

// Nodes without a tensor argument share this line.
struct NoArgument {
  template <class T>
  TP_HD static T argument_derivative(T, T, T, T) {
    return T(0);
  }
};

struct Exp : NoArgument {
  static constexpr NodeInfo kInfo{"exp", "", "exp", "exp(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return math::exp(s);
  }
  template <class T>
  TP_HD static T derivative(T, T out, T, T) {
    return out;
  }
};

struct Log : NoArgument {
  static constexpr NodeInfo kInfo{"log", "", "log", "log(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::log(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return T(1) / s;
  }
};

struct Log1p : NoArgument {
  static constexpr NodeInfo kInfo{"log1p", "", "log1p", "log(1 + s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::log1p(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return T(1) / (T(1) + s);
  }
};

// The derivative at 0 is 0: the distance of coincident rows has subgradient 0.
struct Sqrt : NoArgument {
  static constexpr NodeInfo kInfo{"sqrt", "", "sqrt", "sqrt(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::sqrt(s);
  }
  template <class T>
  TP_HD static T derivative(T, T out, T, T) {
    return out == T(0) ? T(0) : T(0.5) / out;
  }
};

struct Square : NoArgument {
  static constexpr NodeInfo kInfo{"square", "", "square", "s^2"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return s * s;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return T(2) * s;
  }
};

// At s = 0 an exponent below 1 has derivative 0, as sqrt.
struct Pow : NoArgument {
  static constexpr NodeInfo kInfo{"pow", "#", "pow", "s^a"};
  template <class T>
  TP_HD static T forward(T s, T a, T) {
    return std::pow(s, a);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T a, T) {
    return a == T(0) || (s == T(0) && a < T(1)) ? T(0) : a * std::pow(s, a - T(1));
  }
};

struct Absolute : NoArgument {
  static constexpr NodeInfo kInfo{"abs", "", "abs", "|s|"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return math::absolute(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return math::sign(s);
  }
};

struct Reciprocal : NoArgument {
  static constexpr NodeInfo kInfo{"reciprocal", "", "reciprocal", "1 / s"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return T(1) / s;
  }
  template <class T>
  TP_HD static T derivative(T, T out, T, T) {
    return -out * out;
  }
};

struct Tanh : NoArgument {
  static constexpr NodeInfo kInfo{"tanh", "", "tanh", "tanh(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::tanh(s);
  }
  template <class T>
  TP_HD static T derivative(T, T out, T, T) {
    return T(1) - out * out;
  }
};

// The derivative at 0, where the value is infinite, is 0.
struct Rsqrt : NoArgument {
  static constexpr NodeInfo kInfo{"rsqrt", "", "rsqrt", "1 / sqrt(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return T(1) / std::sqrt(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T out, T, T) {
    return s == T(0) ? T(0) : T(-0.5) * out / s;
  }
};

struct Sine : NoArgument {
  static constexpr NodeInfo kInfo{"sin", "", "sin", "sin(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::sin(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return std::cos(s);
  }
};

struct Cosine : NoArgument {
  static constexpr NodeInfo kInfo{"cos", "", "cos", "cos(s)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return std::cos(s);
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return -std::sin(s);
  }
};

// exp of a number <= 0 alone, so that nothing overflows.
struct Sigmoid : NoArgument {
  static constexpr NodeInfo kInfo{"sigmoid", "", "sigmoid", "1 / (1 + exp(-s))"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    const T small = math::exp(-math::absolute(s)), of_negative = small / (T(1) + small);
    return s < T(0) ? of_negative : T(1) - of_negative;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    const T small = math::exp(-math::absolute(s)), sum = T(1) + small;
    return small / (sum * sum);
  }
};

struct Softplus : NoArgument {
  static constexpr NodeInfo kInfo{"softplus", "", "softplus", "log(1 + exp(s))"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return (s < T(0) ? T(0) : s) + std::log1p(math::exp(-math::absolute(s)));
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return Sigmoid::forward(s, s, s);
  }
};

// The derivative at 0 is 0.
struct Relu : NoArgument {
  static constexpr NodeInfo kInfo{"relu", "", "relu", "max(s, 0)"};
  template <class T>
  TP_HD static T forward(T s, T, T) {
    return s < T(0) ? T(0) : s;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T, T) {
    return s > T(0) ? T(1) : T(0);
  }
};

// Comparisons: 1 where they hold and 0 elsewhere, without gradient. With NaN none holds but not_equal.
template <class Relation>
struct Comparison {
  template <class T>
  TP_HD static T forward(T s, T a, T = T(0)) {
    return Relation::holds(s, a) ? T(1) : T(0);
  }
  template <class T>
  TP_HD static T derivative(T, T, T, T) {
    return T(0);
  }
  template <class T>
  TP_HD static T argument_derivative(T, T, T, T) {
    return T(0);
  }
};

struct IsGreater {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s > a;
  }
};
struct IsGreaterEqual {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s >= a;
  }
};
struct IsLess {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s < a;
  }
};
struct IsLessEqual {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s <= a;
  }
};
struct IsEqual {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s == a;
  }
};
struct IsNotEqual {
  template <class T>
  TP_HD static bool holds(T s, T a) {
    return s != a;
  }
};

struct Greater : Comparison<IsGreater> {
  static constexpr NodeInfo kInfo{"greater", "s", "greater", "1 if s > a else 0"};
};
struct GreaterEqual : Comparison<IsGreaterEqual> {
  static constexpr NodeInfo kInfo{"greater_equal", "s", "greater_equal", "1 if s >= a else 0"};
};
struct Less : Comparison<IsLess> {
  static constexpr NodeInfo kInfo{"less", "s", "less", "1 if s < a else 0"};
};
struct LessEqual : Comparison<IsLessEqual> {
  static constexpr NodeInfo kInfo{"less_equal", "s", "less_equal", "1 if s <= a else 0"};
};
struct Equal : Comparison<IsEqual> {
  static constexpr NodeInfo kInfo{"equal", "s", "equal", "1 if s == a else 0"};
};
struct NotEqual : Comparison<IsNotEqual> {
  static constexpr NodeInfo kInfo{"not_equal", "s", "not_equal", "1 if s != a else 0"};
};

// Both sides of a tie get half of the gradient; NaN in the score stays NaN.
struct Minimum {
  static constexpr NodeInfo kInfo{"minimum", "s", "minimum", "min(s, a)"};
  template <class T>
  TP_HD static T forward(T s, T a, T) {
    return s > a ? a : s;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T a, T) {
    return s < a ? T(1) : (s > a ? T(0) : T(0.5));
  }
  template <class T>
  TP_HD static T argument_derivative(T s, T, T a, T) {
    return s < a ? T(0) : (s > a ? T(1) : T(0.5));
  }
};

struct Maximum {
  static constexpr NodeInfo kInfo{"maximum", "s", "maximum", "max(s, a)"};
  template <class T>
  TP_HD static T forward(T s, T a, T) {
    return s < a ? a : s;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T a, T) {
    return s > a ? T(1) : (s < a ? T(0) : T(0.5));
  }
  template <class T>
  TP_HD static T argument_derivative(T s, T, T a, T) {
    return s > a ? T(0) : (s < a ? T(1) : T(0.5));
  }
};

// As torch.clamp: the gradient passes on the closed interval.
struct Clamp : NoArgument {
  static constexpr NodeInfo kInfo{"clamp", "##", "clamp", "min(max(s, a), b)"};
  template <class T>
  TP_HD static T forward(T s, T a, T b) {
    const T low = s < a ? a : s;
    return low > b ? b : low;
  }
  template <class T>
  TP_HD static T derivative(T s, T, T a, T b) {
    return s < a || s > b ? T(0) : T(1);
  }
};

struct Add {
  static constexpr JoinInfo kInfo{"add", "s + t"};
  template <class T>
  TP_HD static T forward(T s, T t) {
    return s + t;
  }
  template <class T>
  TP_HD static T derivative_first(T, T) {
    return T(1);
  }
  template <class T>
  TP_HD static T derivative_second(T, T) {
    return T(1);
  }
};

struct Multiply {
  static constexpr JoinInfo kInfo{"multiply", "s * t"};
  template <class T>
  TP_HD static T forward(T s, T t) {
    return s * t;
  }
  template <class T>
  TP_HD static T derivative_first(T, T t) {
    return t;
  }
  template <class T>
  TP_HD static T derivative_second(T s, T) {
    return s;
  }
};

// Joins that are nodes with the second score as the argument.
template <class Node>
struct NodeOfTwo {
  template <class T>
  TP_HD static T forward(T s, T t) {
    return Node::forward(s, t, T(0));
  }
  template <class T>
  TP_HD static T derivative_first(T s, T t) {
    return Node::derivative(s, T(0), t, T(0));
  }
  template <class T>
  TP_HD static T derivative_second(T s, T t) {
    return Node::argument_derivative(s, T(0), t, T(0));
  }
};

struct MinimumOf : NodeOfTwo<Minimum> {
  static constexpr JoinInfo kInfo{"minimum_of", "min(s, t)"};
};
struct MaximumOf : NodeOfTwo<Maximum> {
  static constexpr JoinInfo kInfo{"maximum_of", "max(s, t)"};
};
struct GreaterOf : NodeOfTwo<Greater> {
  static constexpr JoinInfo kInfo{"greater_of", "1 if s > t else 0"};
};
struct GreaterEqualOf : NodeOfTwo<GreaterEqual> {
  static constexpr JoinInfo kInfo{"greater_equal_of", "1 if s >= t else 0"};
};
struct EqualOf : NodeOfTwo<Equal> {
  static constexpr JoinInfo kInfo{"equal_of", "1 if s == t else 0"};
};
struct NotEqualOf : NodeOfTwo<NotEqual> {
  static constexpr JoinInfo kInfo{"not_equal_of", "1 if s != t else 0"};
};

}  // namespace torchpairwise
