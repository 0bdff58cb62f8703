"""Settings for all tests."""

import torch

torch.manual_seed(0)
