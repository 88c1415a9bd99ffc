"""How unlike clients are, as it was told: a matrix, a file that holds one, or a label for each client."""

from typing import Any

import jax
import numpy as np

from apiece.errors import UserError
from apiece.estimate.similarity import bias_of_clusters


def given_bias(name: str, population: int, bias: Any, clusters: Any) -> Any:
    """The matrix b as it was given, or as its file has it; empty if it is to be measured."""
    if isinstance(bias, str):
        bias = read_matrix(name, bias)
    traced = isinstance(bias, jax.Array)  # several b in one compile; its numbers cannot be looked at
    matrix, labels = bias if traced else np.asarray(bias, float), np.asarray(clusters)
    if matrix.size and labels.size:
        raise UserError(f"{name}: give 'bias' or 'clusters', not both")
    clients = population or len(matrix) or len(labels)
    if not clients:
        raise UserError(f"{name}: give 'population', the number of clients (or 'bias', or 'clusters')")
    if labels.size and labels.shape != (clients,):
        raise UserError(f"{name}: 'clusters' needs a label for each of {clients} clients, not {labels.shape}")
    if matrix.size and (matrix.shape != (clients, clients) or (not traced and (matrix < 0).any())):
        raise UserError(f"{name}: 'bias' is a {clients} x {clients} matrix of numbers from 0, not {matrix.shape}")
    return bias_of_clusters(labels) if labels.size else matrix


def read_matrix(name: str, path: str) -> np.ndarray:
    """A matrix from a file of numbers with commas (.csv) or of NumPy (.npy); the error names the file.

    >>> read_matrix("all_for_all", "nowhere.csv")
    Traceback (most recent call last):
    apiece.errors.UserError: all_for_all: 'bias' names the file nowhere.csv, which is no matrix of numbers: ...
    """
    try:
        found = np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
        return np.asarray(found, float)
    except (OSError, ValueError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UserError(f"{name}: 'bias' names the file {path}, which is no matrix of numbers: {why}") from None
