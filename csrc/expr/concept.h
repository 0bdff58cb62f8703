// What a node is.
//
// A node is one elementwise step s -> f(s, a, b) on a score. `a` and `b` are its arguments at this pair: numbers, 0-dim tensors, or the
// entries of a row or column vector. It is a struct of static functions, written once for the host and the device:
//
//   static constexpr NodeInfo kInfo;
//   template <class T> static T forward(T s, T a, T b);
//   template <class T> static T derivative(T s, T out, T a, T b);           // d out / d s
//   template <class T> static T argument_derivative(T s, T out, T a, T b);  // d out / d a; 0 where a is never a tensor
//
// Laws: `derivative` is finite wherever the documented subgradient is (sqrt at 0: 0; abs at 0: 0; ties of minimum: half each); the
// entries of the record are the only place that names, signature and formula are written down; `transposed` names the node that means
// the same after rows and columns change places.
//
// Toy node, s -> 2 s:
//   struct Twice {
//     static constexpr NodeInfo kInfo{"twice", "", "twice", "2 s"};
//     template <class T> TP_HD static T forward(T s, T, T) { return T(2) * s; }
//     template <class T> TP_HD static T derivative(T, T, T, T) { return T(2); }
//     template <class T> TP_HD static T argument_derivative(T, T, T, T) { return T(0); }
//   };
#pragma once

namespace torchpairwise {

struct NodeInfo {
  const char* name;
  // One letter an argument. s: number or 0-dim tensor; #: number only; r: row vector [N]; c: column vector [M].
  const char* signature;
  const char* transposed;
  const char* formula;
};

// A node that joins the last two scores of the stack: forward(s, t), derivatives to s and to t.
struct JoinInfo {
  const char* name;
  const char* formula;
};

}  // namespace torchpairwise
