"""Memory of devices over time: rebuilt from what allocators recorded, and accounted for at its peak."""
