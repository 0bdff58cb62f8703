"""
Kernel regression with a learned width
======================================

Nadaraya-Watson regression predicts the average of the training targets, weighted by a kernel of the distance. Here the width of the
kernel is learned by gradient descent on the leave-one-out error: the prediction at each point from all the other points.
No matrix of weights is ever stored, neither in the predictions nor in their gradients.
"""

# %%
# Data: a sine whose frequency grows, with noise.
import matplotlib.pyplot as plt
import torch

import torchpairwise as tp

generator = torch.Generator().manual_seed(0)
n = 1500
x = torch.rand(n, 1, generator=generator).sort(0).values
clean = torch.sin(12 * x.squeeze(-1) ** 2)
y = clean + 0.3 * torch.randn(n, generator=generator)

# %%
# A prediction is one product with the kernel matrix: its first column collects the weighted targets, the second the weights. ``gamma`` is a
# tensor, so the product is differentiable in it.
targets = torch.stack([y, torch.ones(n)], dim=-1)


def predict(at: torch.Tensor, gamma: torch.Tensor, leave_one_out: bool = False) -> torch.Tensor:
    kernel = tp.lazy(at, x, metric="rbf", gamma=gamma)
    weighted, mass = kernel.matmul(targets, exclude_self=leave_one_out).unbind(-1)
    return weighted / mass


# %%
# Learn the logarithm of gamma from a width that is far too large.
log_gamma = torch.tensor(2.0, requires_grad=True)
optimizer = torch.optim.Adam([log_gamma], lr=0.3)
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = (predict(x, log_gamma.exp(), leave_one_out=True) - y).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
gamma = log_gamma.exp().detach()
print(f"gamma {gamma:.0f}, leave-one-out error {losses[0]:.3f} -> {losses[-1]:.3f} (noise alone: {0.3**2:.3f})")

# %%
# The dense computation agrees.
weights = torch.exp(-gamma * torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square())
dense = (weights @ y) / weights.sum(-1)
print(f"largest difference from dense torch: {(predict(x, gamma) - dense).abs().max():.1e}")

# %%
# The fit at the first and at the last width, and the error on the way.
grid = torch.linspace(0, 1, 400).unsqueeze(-1)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=[2, 1])
left.plot(x, y, ".", color="0.8", markersize=3, label="data")
left.plot(x, clean, color="black", linewidth=1, label="truth")
left.plot(grid, predict(grid, torch.tensor(2.0).exp()), color="tab:orange", label="first width")
left.plot(grid, predict(grid, gamma), color="tab:blue", label="learned width")
left.set(xlabel="x", ylabel="y", title="Nadaraya-Watson regression")
left.legend()
right.plot(losses)
right.axhline(0.3**2, color="black", linestyle=":", label="noise")
right.set(xlabel="step", ylabel="leave-one-out error", title="Learning the width")
right.legend()
figure.tight_layout()
plt.show()
