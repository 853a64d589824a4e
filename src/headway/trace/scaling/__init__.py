"""How a configuration scales: ladders of sizes, what grows, a law of step time, the next doublings."""
