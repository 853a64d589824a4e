"""What people look at: tables in a terminal, a progress line, one self-contained HTML page.

Other rooms compute, this one draws. Import from the module that defines a thing: `from headway.report.terminal import print_breakdown`.
"""
