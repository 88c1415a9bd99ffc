"""What theory predicts: pure NumPy in float64, the equation and its assumptions in each docstring."""
