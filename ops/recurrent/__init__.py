"""Recurrent layers: LSTM, GRU and plain ones, unrolled over time or as one operator."""
