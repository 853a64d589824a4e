"""A step simulated again: its graph of host, kernels and collectives, with causes of lost time taken out."""
