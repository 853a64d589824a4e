"""Several ranks of one run: what a collective is, the same one found on all ranks, and who waited for whom."""
