"""Recipes: functions that return a `RunSpec`. `headway recipes` lists them."""
