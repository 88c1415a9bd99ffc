"""A `torch.nn.Module` as a model of this library."""
