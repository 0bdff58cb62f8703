// What surrounds a call: transforms of torch.func, forward-mode derivatives, and the state of autograd.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchpairwise::aten {

// A transform of torch.func (vmap, grad, jvp) is active. Then tensors may stand for batches: no value can be read on the host, and no
// autograd Function may be used.
inline bool in_transform() {
  const c10::DispatchKeySet transforms({c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode});
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(transforms);
}

// No value of `x` can be read on the host: a transform is active, or it is a tracer's tensor without numbers.
inline bool is_unreadable(const at::Tensor& x) { return in_transform() || x.unsafeGetTensorImpl()->is_python_dispatch() || x.is_meta(); }

inline bool has_tangent(const at::Tensor& x) { return x.defined() && x._fw_grad(/*level=*/0).defined(); }

// Records operations although the caller runs below autograd, as the kernel of an operation does.
class RecordingGuard {
 public:
  RecordingGuard() : keys_(with_autograd()) {}

 private:
  static c10::impl::LocalDispatchKeySet with_autograd() {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
    return keys;
  }
  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace torchpairwise::aten
