"""The demonstration's scores: any pronunciation that the dictionary lists for a word counts."""

from pathlib import Path

from transduce.demo import score_demo
from transduce.translator import LoadOptions, Translator

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
WORDS = ["winter", "rain", "seven"]


def test_any_listed_pronunciation_counts() -> None:
    translator = Translator.load(FROZEN, LoadOptions(engine="torch", device="cpu", threads=1))
    outputs = dict(zip(WORDS, translator.translate(WORDS), strict=True))
    listed = [(word, phonemes) for word in WORDS for phonemes in ("ZH ZH ZH", outputs[word])]
    scores = score_demo(translator, listed)
    assert scores.words == 3
    for found in (scores.stressed, scores.plain):
        assert [score.name for score in found.all] == ["PER", "WER", "exact match"]
        assert [score.value for score in found.all] == [0, 0, 100]
        assert str(found) == "PER 0.00  WER 0.00"
        assert found.main.signature.startswith("nrefs:2|")
        assert found.main.signature.endswith("|refs:merged")
    only_wrong = score_demo(translator, [(word, "ZH ZH ZH") for word in WORDS])
    assert only_wrong.stressed.all[2].value == 0
    assert list(scores.as_dict()["stressed"]) == ["PER", "WER", "exact match"]  # type: ignore[call-overload]
