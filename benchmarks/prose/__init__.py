"""Figures in the prose of documents: the pieces of sentences that state them, made from result files.

People write the documents. A function here yields what a document must say, and tests/test_prose.py fails if it says anything else. So the
text stays pleasant to read and to change, no figure can drift away from its result file, and whoever measures again is told which sentences to
read again. In the documents of WHOLE, a figure that no statement covers is an error too.
"""

from . import complexity, guides, recipes, rivals, variations

WHOLE = {
    "docs/complexity.md": complexity.statements,
    "docs/records.md": guides.records,
    "docs/rivals.md": rivals.statements,
    "docs/variations.md": variations.statements,
    **recipes.STATEMENTS,
}
DOCUMENTS = WHOLE | guides.STATEMENTS
