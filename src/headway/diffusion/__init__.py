"""The mathematics of diffusion: path, schedule, objective, guidance and samplers, as functions."""
