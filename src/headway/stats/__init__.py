"""Numbers with error bars: intervals, paired comparisons, counted overhead, tests, noise. numpy and the standard library only.

Import from the module that defines a thing: `from headway.stats.paired import run_paired`.
"""
