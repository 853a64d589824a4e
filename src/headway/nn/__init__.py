"""Networks for one device, written once: plain modules whose parameters name logical axes."""
