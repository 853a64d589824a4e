"""What inputs that are no timelines say: flight recorders, NCCL logs, counters of kernels."""
