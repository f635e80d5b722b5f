"""Look-ups: embeddings, bags of rows, elements by index."""
