"""Models: operators over logical regions, and graph -> graph transformations.

`window`, `pattern` and `binding` say what of an operator may be split; `kernel` what it runs; `dtypes` what its results
are. `graph` has the graph, its operators and its regions. Above it, `differentiate` and `update` append operators,
`precision` and `fuse` make graphs of graphs by way of `rebuild`, and `orders` decides memory orders. Nothing here knows
of devices.
"""
