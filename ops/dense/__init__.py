"""Affine maps and products: linear, convolution, matrix products, feed-forward layers, interactions."""
