"""Documents: split into sentences and put together again, with tags around the words that they belong to.

Knows strings only: no models, no vocabularies, no HTTP.
"""

from transduce.documents.splitting import Document, Splitter

__all__ = ["Document", "Splitter"]
