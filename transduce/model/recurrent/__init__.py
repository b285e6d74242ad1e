"""Recurrent families of models: `rnn` with attention, `seq2seq` without, and the deep `gnmt`.

Whole rows are computed by nn.GRU and nn.LSTM, which are cuDNN's on a GPU: sources packed by length, targets padded.
"""

from transduce.model.recurrent.gnmt import Gnmt
from transduce.model.recurrent.rnn_search import RnnSearch
from transduce.model.recurrent.seq2seq import Seq2seq

__all__ = ["Gnmt", "RnnSearch", "Seq2seq"]
