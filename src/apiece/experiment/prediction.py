"""What a model says of some rows: classes with their probabilities, or values in their own units."""

from typing import NamedTuple

import numpy as np


class Prediction(NamedTuple):
    """What a client's model says of a batch of examples.

    >>> said = Prediction(np.array([[0.0, 0.0], [-1.0, 1.0]]), classes=("no", "yes"))
    >>> said.labels, said.probabilities[0].tolist()
    (['no', 'yes'], [0.5, 0.5])
    """

    outputs: np.ndarray
    """As the model gives them: a score for each class, or values as they were trained on."""
    classes: tuple[str, ...] = ()
    values: np.ndarray | None = None
    """Without classes: the values in the units of the targets."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the rows: columns that were ignored, words that were never seen."""
    called: tuple[str, ...] = ()
    """What the rows are called where they are no lines of a table: pictures by their files, texts by themselves."""

    @property
    def probabilities(self) -> np.ndarray:
        """Of every class, by the softmax of the scores."""
        scores = np.asarray(self.outputs, np.float64)
        likely = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return likely / likely.sum(axis=-1, keepdims=True)

    @property
    def labels(self) -> list:
        """The name of the class with the highest score; of sequences, at every place."""
        return np.asarray(self.classes, object)[self.outputs.argmax(axis=-1)].tolist()

    def columns(self) -> dict[str, list]:
        """As a table: `prediction`, and behind it the probability of every class; of characters, the text alone."""
        return ({"row": list(self.called)} if self.called else {}) | self._said()

    def _said(self) -> dict[str, list]:
        if not self.classes:
            assert self.values is not None
            flat = self.values.reshape(len(self.values), -1)
            names = ["prediction"] if flat.shape[1] == 1 else [f"prediction[{j}]" for j in range(flat.shape[1])]
            return dict(zip(names, flat.T.tolist(), strict=True))
        if self.outputs.ndim > 2:  # sequences
            return {"prediction": ["".join(map(str, places)) for places in self.labels]}
        likely = self.probabilities
        return {"prediction": self.labels} | {
            f"probability {name}": likely[..., number].tolist() for number, name in enumerate(self.classes)
        }
