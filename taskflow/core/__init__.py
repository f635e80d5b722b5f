"""The ground: boxes, dtypes, random numbers, errors, what the operating system says, and how code is compiled.

Nothing here knows of operators, devices or tasks. Every other folder may import it; it imports none of them.
"""
