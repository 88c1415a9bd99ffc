"""Fine-tuned and ridge-tuned averaging (Cheng, Chadha and Duchi 2021)."""
