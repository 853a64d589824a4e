"""What changed between two runs, in parts that add up to the difference."""
