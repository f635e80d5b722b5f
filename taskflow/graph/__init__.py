"""Models: operators over logical regions, and graph -> graph transformations.

`region`, `pattern`, `window` and `operator` are the values; `graph` holds them in program order; `differentiate`,
`precision` and `fuse` make graphs of graphs. Nothing here knows of devices.
"""
