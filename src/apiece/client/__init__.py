"""What a client does with its data: draw a batch, descend, solve."""
