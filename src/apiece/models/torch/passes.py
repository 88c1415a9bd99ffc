"""What PyTorch does when it is called: passes through replicas of a module, NumPy arrays in and out.

Several devices call at once, each from a thread that lives only for the call: replicas wait in a list, and whoever
calls takes one and brings it back. Rows of weight 0 never reach the module. Seeds are the caller's; the generator of
PyTorch is one for all threads, so modules that draw (dropout) take turns, and it is left as it was found.
"""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch.nn import functional

from apiece.errors import UserError
from apiece.machine import count_cores

Array = Any  # of NumPy: an array, or one number
PerExample = Callable[[Any, Any], torch.Tensor]  # (outputs, labels) -> one number an example
_turn = threading.Lock()  # for PyTorch's generator


class Form(NamedTuple):
    """How examples look, apart from their number: tree structures, and shape and dtype of one row of each leaf."""

    x: Any
    y: Any
    rows: tuple[tuple[tuple[int, ...], str], ...]

    def examples(self, leaves: list, here: Any = slice(None)) -> tuple[Any, Any]:
        """(x, y) as the module and the loss see them, the rows `here` alone: labels that are integers as int64."""
        single = lambda leaf: leaf.astype(np.float32, copy=False) if leaf.dtype == np.float64 else leaf
        tensors = [torch.from_numpy(single(np.asarray(leaf)[here])) for leaf in leaves]
        x = jax.tree.unflatten(self.x, tensors[: self.x.num_leaves])
        whole = lambda label: label if label.is_floating_point() else label.long()
        return x, jax.tree.unflatten(self.y, [whole(label) for label in tensors[self.x.num_leaves :]])

    def zeros(self, count: int) -> list[np.ndarray]:
        """So many made-up examples."""
        return [np.zeros((count, *shape), dtype) for shape, dtype in self.rows]


class Replica:
    """A copy of the module, whose trained parameters NumPy can write to."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = copy.deepcopy(module)
        self.modes = [(part, part.training) for part in self.module.modules()]
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.memory = [p.detach().numpy() for p in self.parameters]
        self.training = True

    def set(self, values: tuple[np.ndarray, ...], training: bool) -> None:
        """These parameter values; and the modes the module was given in, or all of it in evaluation mode."""
        for mine, value in zip(self.memory, values, strict=True):
            np.copyto(mine, value)
        if self.training != training:
            for part, mode in self.modes:
                part.training = mode and training
            self.training = training


class Passes:
    """The passes through one module. `loss` and `error` are PyTorch functions of (outputs, labels), by example."""

    def __init__(self, module: torch.nn.Module, loss: PerExample, error: PerExample) -> None:
        self.name = type(module).__name__
        try:
            self.module = copy.deepcopy(module)  # what becomes of the user's own is no concern of a run
        except Exception as problem:
            raise UserError(f"{self.name} cannot be copied, so no two clients could use it: {problem}") from problem
        self.loss, self.error = loss, error
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names = list(named)
        self.start = [p.detach().numpy().copy() for p in named.values()]
        self.count = len(self.names)
        self.threads = 0  # for each call from a program's own thread; 0: as PyTorch has it
        self.tried: set[Form] = set()
        self.curve_tried: set[Form] = set()
        self.still: set[Form] = set()  # examples on which the module was seen not to draw
        self._spare: list[Replica] = []

    def value(self, form: Form, *arrays: Array) -> list[Array]:
        """The weighted mean loss."""
        with self._borrowed(arrays, "value") as replica:
            return [self._loss(form, replica, arrays[self.count :]).detach().numpy()]

    def slope(self, form: Form, wanted: tuple[int, ...], *arrays: Array) -> list[Array]:
        """The loss, and its gradient in the wanted parameters: one pass forth and back.

        What comes after the last parameter, as number `count`, is the weights of the examples.
        """
        with self._borrowed(arrays, "gradient") as replica:
            loss, variables = self._weighed(form, replica, arrays[self.count :], wanted)
            gradient = _gradient(loss, [variables[i] for i in wanted])
            return [loss.detach().numpy(), *(g.numpy() for g in gradient)]

    def curve(self, form: Form, moved: tuple[int, ...], wanted: tuple[int, ...], *arrays: Array) -> list[Array]:
        """The second derivative applied to a direction in the `moved` parameters, in the wanted ones."""
        direction, arrays = arrays[: len(moved)], arrays[len(moved) :]
        with self._borrowed(arrays, "second derivative") as replica:
            loss, variables = self._weighed(form, replica, arrays[self.count :], (*moved, *wanted))
            slope = _gradient(loss, [variables[i] for i in moved], again=True)
            along = sum((g * torch.tensor(d)).sum() for g, d in zip(slope, direction, strict=True))
            return [c.numpy() for c in _gradient(along, [variables[i] for i in wanted])]

    def descend(self, form: Form, *arrays: Array) -> list[Array]:
        """Plain gradient steps: parameters, their size, and then a batch a step along the first axis of the rest."""
        rate = float(arrays[self.count])
        with self._borrowed(arrays, "gradient") as replica:
            for batch in zip(*arrays[self.count + 1 :], strict=True):
                gradient = _gradient(self._loss(form, replica, batch), replica.parameters)
                for p, g in zip(replica.parameters, gradient, strict=True):
                    p.data.sub_(g, alpha=rate)
            return [value.copy() for value in replica.memory]

    def outputs(self, form: Form, *arrays: Array) -> list[Array]:
        """What the module says, in evaluation mode."""
        with self._borrowed(arrays, "evaluation") as replica:
            x, _ = form.examples([np.array(leaf) for leaf in arrays[self.count :]])
            with self._seeds(form, 0):
                return [_float32(out) for out in jax.tree.leaves(replica.module(x))]

    def outcomes(self, form: Form, *arrays: Array) -> list[Array]:
        """(loss, error) of each example, in evaluation mode; 0 where the weight is."""
        weight, leaves = arrays[self.count], arrays[self.count + 1 :]
        scores = [np.zeros(len(weight), np.float32) for _ in range(2)]
        here = np.flatnonzero(weight)
        if here.size:
            with self._borrowed(arrays, "evaluation") as replica:
                x, y = form.examples(list(leaves), here)
                with self._seeds(form, 0):
                    outputs = replica.module(x)
                    judged = self.loss(outputs, y), self.error(outputs, y)
                for score, found, word in zip(scores, judged, ("loss", "error"), strict=True):
                    self._check(found, here.size, word)
                    score[here] = _float32(found)
        return scores

    def trial(self, form: Form) -> None:
        """A training pass and a judgement of two made-up examples: what would fail later fails now, before a run."""
        if form in self.tried:
            return
        weight, examples = np.ones(2, np.float32), form.zeros(2)
        self.slope(form, tuple(range(self.count)), *self.start, weight, np.uint32(0), *examples)
        self.outcomes(form, *self.start, weight, *examples)
        with self._borrowed(tuple(self.start), "value") as replica, seeded(0), torch.no_grad():
            before = torch.get_rng_state()
            x, y = form.examples(form.zeros(2))
            self.loss(replica.module(x), y)
            if torch.equal(before, torch.get_rng_state()):
                self.still.add(form)
        given, now = (dict(module.named_buffers()) for module in (self.module, replica.module))
        moved = [name for name, buffer in now.items() if not _same(buffer, given[name])]
        if moved:
            kinds = sorted({type(self.module.get_submodule(name.rpartition(".")[0])).__name__ for name in moved})
            raise UserError(
                f"{self.name} changes buffers of its own while it trains ({', '.join(moved)}; of {', '.join(kinds)}). "
                "They are no parameters: no method would send, average or keep them. Take a layer without running "
                "statistics (torch.nn.GroupNorm, or track_running_stats=False); or, to keep them as they are now, "
                "put these layers in evaluation mode with .eval() before giving the module"
            )
        self.tried.add(form)

    def trial_curve(self, form: Form) -> None:
        """A second derivative at two made-up examples: not every layer has one."""
        if form not in self.curve_tried:
            every, blank = tuple(range(self.count)), [np.ones(2, np.float32), np.uint32(0), *form.zeros(2)]
            self.curve(form, every, every, *self.start, *self.start, *blank)
            self.curve_tried.add(form)

    def _weighed(self, form: Form, replica: Replica, batch: tuple, asked: tuple[int, ...]) -> tuple[torch.Tensor, list]:
        """The loss, and the variables that it is a function of: parameters and, if asked for, the weights behind them.

        A weight of 0 is none: such examples are never looked at.
        """
        if self.count not in asked:
            return self._loss(form, replica, batch), replica.parameters
        weight = torch.tensor(batch[0], requires_grad=True)
        return self._loss(form, replica, batch, weight), [*replica.parameters, weight]

    def _loss(self, form: Form, replica: Replica, batch: tuple, variable: Any = None) -> torch.Tensor:
        """The mean loss over the examples that are there; `batch` is weight, seed, examples."""
        weight, seed, *leaves = batch
        here = np.flatnonzero(weight)
        if not here.size:
            return torch.zeros(())
        x, y = form.examples(leaves, here)
        with self._seeds(form, int(seed)):
            each = self.loss(replica.module(x), y)
        self._check(each, here.size)
        if variable is None:
            return (torch.from_numpy(weight[here] / max(weight.sum(), 1)) * each).sum()
        return (variable[here] / variable.sum().clamp(min=1) * each).sum()

    @contextlib.contextmanager
    def _borrowed(self, arrays: tuple, what: str) -> Iterator[Replica]:
        """A replica with the parameters that come first, for one caller; errors of PyTorch's come in its own words."""
        mine = threading.get_ident() != threading.main_thread().ident  # not the user's thread: a program's own
        if mine and self.threads not in (0, torch.get_num_threads()):
            torch.set_num_threads(self.threads)
        try:
            replica = self._spare.pop()
        except IndexError:
            replica = Replica(self.module)
        judging = what == "evaluation"
        try:
            replica.set(arrays[: self.count], training=not judging)
            with torch.set_grad_enabled(not judging):
                yield replica
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"PyTorch, in the {what} of {self.name}: {type(error).__name__}: {error}") from error
        finally:
            self._spare.append(replica)

    def _seeds(self, form: Form, seed: int) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if form in self.still else seeded(seed)

    def _check(self, each: Any, count: int, word: str = "loss") -> None:
        shape = tuple(getattr(each, "shape", ()))
        if shape != (count,):
            raise UserError(
                f"the {word} of {self.name} must be one number an example, of shape ({count},) for {count} examples; "
                f"it has the shape {shape}. With PyTorch's own losses: reduction='none', and a mean over what is left"
            )


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch's generator from this seed, for one caller at a time; afterwards as it was."""
    with _turn:
        state = torch.get_rng_state()
        try:
            torch.default_generator.manual_seed(seed)
            yield
        finally:
            torch.set_rng_state(state)


def usual_loss(outputs: Any, labels: Any) -> torch.Tensor:
    """Cross-entropy where labels are classes, half the squared error where they are numbers.

    Where an example has several classes (a sequence), their mean; places whose class is -1 do not count.
    """
    if labels.is_floating_point():
        return _squared(outputs, labels) / 2
    classes = labels.reshape(-1)
    ignored = -1 if labels.ndim > 1 else -100
    each = functional.cross_entropy(_logits(outputs, labels), classes, reduction="none", ignore_index=ignored)
    return _over_places(each, labels)


def usual_error(outputs: Any, labels: Any) -> torch.Tensor:
    """The share of an example's labels that the largest output is not; the squared error where they are numbers."""
    if labels.is_floating_point():
        return _squared(outputs, labels)
    wrong = _logits(outputs, labels).argmax(-1) != labels.reshape(-1)
    return _over_places(wrong.float(), labels)


def checked(module: Any) -> torch.nn.Module:
    """The module, if it can be trained here; a `UserError` tells what to change."""
    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"from_torch needs a torch.nn.Module, or a function that makes one; got {name}")
    lazy = [n for n, p in module.named_parameters() if isinstance(p, torch.nn.parameter.UninitializedParameter)]
    if lazy:
        raise UserError(f"{name} has lazy parameters ({', '.join(lazy)}); run it once on a batch to give them a shape")
    trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if not trained:
        raise UserError(f"{name} has no parameter to train (none requires a gradient)")
    for n, p in trained.items():
        if p.dtype != torch.float32 or p.device.type != "cpu":
            raise UserError(f"parameter {n} of {name} is {p.dtype} on {p.device}; float32 on the CPU is needed: "
                            "give module.float().cpu()")  # fmt: skip
        if "/" in n:
            raise UserError(f"parameter {n} of {name} has '/' in its name, which here parts a path; rename it")
    return module


def threads_each(devices: int) -> int:
    """How many threads PyTorch may use in a call, if every device may call at once.

    >>> threads_each(1_000_000)
    1
    """
    return max(1, count_cores() // devices)


def _gradient(value: Any, parameters: list, again: bool = False) -> tuple[torch.Tensor, ...]:
    if not getattr(value, "requires_grad", False):  # constant in all parameters
        return tuple(torch.zeros_like(p) for p in parameters)
    found = torch.autograd.grad(value, parameters, create_graph=again, allow_unused=True, materialize_grads=True)
    return found if again else tuple(g.detach().contiguous() for g in found)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _over_places(each: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if labels.ndim == 1:
        return each
    present = (labels.reshape(len(labels), -1) >= 0).float()
    return (present * each.reshape(len(labels), -1)).sum(1) / present.sum(1).clamp(min=1)


def _squared(outputs: Any, labels: Any) -> torch.Tensor:
    if outputs.numel() != labels.numel():
        raise UserError(f"the module gives outputs of shape {tuple(outputs.shape)} for labels of shape "
                        f"{tuple(labels.shape)}; make them agree, or give from_torch a loss of your own")  # fmt: skip
    return (outputs.reshape(labels.shape) - labels).square().reshape(len(labels), -1).sum(1)


def _logits(outputs: Any, labels: Any) -> torch.Tensor:
    if outputs.shape[:-1] != labels.shape or outputs.shape[-1] < 2:
        raise UserError(f"the module gives outputs of shape {tuple(outputs.shape)} for class labels of shape "
                        f"{tuple(labels.shape)}; cross-entropy needs one score a class along the last axis: change the "
                        "last layer, or give from_torch a loss of your own")  # fmt: skip
    return outputs.reshape(-1, outputs.shape[-1])


def _float32(out: torch.Tensor) -> np.ndarray:
    return out.float().contiguous().numpy()
