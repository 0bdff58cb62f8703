"""Functions of two samples: the modules that they use, their mapping over all pairs, and the refusal of random numbers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchpairwise.comparisons.collections import Collection

__all__ = ["Caller", "mapped", "refuse_state"]


class Caller(nn.Module):
    """A function with the modules that it uses, so that their parameters can be given from outside for the time of a call."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        held = list(_held(function))
        self._tensors = tuple((name, value) for name, value in held if isinstance(value, Tensor))
        self.check()
        self._function = (function,)  # in a tuple, so that a module is not registered twice
        self.modules_used = nn.ModuleList([value for _, value in held if isinstance(value, nn.Module)])

    def check(self) -> None:
        """Raises if a tensor that the function uses requires a gradient by now, which would be lost."""
        for name, value in self._tensors:
            if value.requires_grad:
                raise ValueError(
                    f"the function uses {name}, a tensor that requires a gradient, which only a module can pass on; "
                    f"give an nn.Module that holds it as a parameter"
                )

    def state(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def changing(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Of tensors given in the order of `state`, the buffers, where a module that has some is in training and may change them."""
        if not any(module.training and module._buffers for module in self.modules()):
            return ()
        first = len(dict(self.named_parameters()))
        return given[first : first + len(dict(self.named_buffers()))]

    def forward(self, x: Any, y: Any) -> Tensor:
        return self._function[0](x, y)


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a function uses and that may hold parameters."""
    if isinstance(function, nn.Module):
        yield "module", function
    elif isinstance(function, functools.partial):
        yield from _held(function.func)
        yield from [*_numbered(function.args), *function.keywords.items()]
    elif inspect.ismethod(function):
        yield "self", function.__self__
        yield from _held(function.__func__)
    elif inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        yield from [*used.nonlocals.items(), *used.globals.items()]
        yield from [*_numbered(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    else:
        yield from getattr(function, "__dict__", {}).items()


def _numbered(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Positional values with a name for messages."""
    return [(f"argument {index}", value) for index, value in enumerate(values)]


def mapped(function: Callable[[Any, Any], Tensor], x: Collection, y: Collection) -> Tensor:
    """`function` of two samples, for all pairs of leading dimensions that broadcast, without repeating any sample."""
    n = max(len(x.lead), len(y.lead))
    x, y = x.with_lead(n), y.with_lead(n)
    call = function
    for a, b in reversed(list(zip(x.lead, y.lead, strict=True))):
        both = a == b
        call = torch.vmap(call, (0 if both or a != 1 else None, 0 if both or b != 1 else None))
    alone_x = [d for d in range(n) if x.lead[d] == 1 != y.lead[d]]
    alone_y = [d for d in range(n) if y.lead[d] == 1 != x.lead[d]]
    return call(x.map(lambda leaf, _: leaf.squeeze(alone_x)).tree, y.map(lambda leaf, _: leaf.squeeze(alone_y)).tree)


class _Randomness(TorchDispatchMode):
    """Notes the operations that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


def refuse_state(name: str, call: Callable[[], Any], device: torch.device, buffers: Sequence[Tensor]) -> Any:
    """The result of `call`, which evaluates a tile; it may neither draw random numbers nor change `buffers` in place.

    Backward evaluates the tiles again, cut in another way, so that no seed would give the same numbers.

    Raises:
        ValueError: it did.
    """
    values = [tensor.detach().clone() for tensor in buffers]
    before = _generator_state(device)
    result = call()
    if any(not torch.allclose(tensor, value, rtol=0, atol=0, equal_nan=True) for tensor, value in zip(buffers, values, strict=True)):
        raise ValueError(
            f"the comparison {name} changes a buffer in place, as batch normalisation does in training; a streamed comparison "
            f"is evaluated several times, so call .eval() on that module, or keep such layers in the encoder"
        )
    if not torch.equal(before, _generator_state(device)):
        # Another thread may have drawn; a second evaluation tells.
        with _Randomness() as randomness:
            call()
        if randomness.found:
            raise ValueError(
                f"the comparison {name} draws random numbers ({randomness.found[0]}); backward evaluates scores again and would draw "
                f"others. Call .eval() on its dropout, draw the numbers outside, or call the comparison itself for stored scores"
            )
    return result


def _generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
