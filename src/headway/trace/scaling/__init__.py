"""How a training scales: the same configuration at several sizes."""
