"""Recurrent families of models: `rnn` with attention, `seq2seq` without, and the deep `gnmt`.

Whole rows are computed by nn.GRU and nn.LSTM, which are cuDNN's on a GPU: sources packed by length, targets padded.
"""

from transduce.model.recurrent.rnn_search import RnnSearch

__all__ = ["RnnSearch"]
