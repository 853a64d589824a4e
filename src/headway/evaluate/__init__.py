"""Judgement of a model: loss by timestep, agreement of samples with their class, copies and collapse."""
