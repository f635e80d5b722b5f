"""Relations between vertices: edges, sums over them, and the stages of graph networks."""
