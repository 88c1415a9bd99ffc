"""A risk in its two parts."""

from typing import Any, NamedTuple

from apiece.theory import plain


class Risk(NamedTuple):
    """Squared bias and variance; the risk is their sum.

    >>> Risk(0.5, 1.0).total
    1.5
    """

    bias: Any
    variance: Any

    @property
    def total(self) -> Any:
        """bias + variance."""
        return self.bias + self.variance

    def plus(self, more: "Risk") -> "Risk":
        """Part by part.

        >>> Risk(0.5, 1.0).plus(Risk(0.25, 0.0))
        Risk(bias=0.75, variance=1.0)
        """
        return Risk(plain(self.bias + more.bias), plain(self.variance + more.variance))
