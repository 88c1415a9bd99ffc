"""What is measured about clients: how alike they are, how sure of themselves, what a split of the model would do."""
