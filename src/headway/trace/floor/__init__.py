"""The least time that the work of a step can take: FLOPs and bytes from shapes, over what the device can do."""
