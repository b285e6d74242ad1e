"""The store: the ids of the corpus, what is left out and why, and that nothing half-built is ever taken for whole."""

import errno
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from transduce.config import DataConfig
from transduce.config.columns import Columns
from transduce.data import (
    Corpus,
    Report,
    Rules,
    Store,
    cache,
    cache_folder,
    learn_vocabularies,
    open_or_build,
    scan,
)
from transduce.data import corpus as reading
from transduce.data import store as storing
from transduce.data.ragged import RaggedWriter, Rows
from transduce.errors import DataError
from transduce.text import EOS, Vocabularies, train_vocabulary

SENTENCES = [
    f"the {size} {animal} sees {number} small {things}"
    for number, size in enumerate(["old", "red", "big"])
    for animal in ("cat", "dog")
    for things in ("birds", "fish", "trees", "stones")
]
PAIRS = [(line, line[::-1]) for line in SENTENCES * 5]
ODD = [("", "x"), (" ", "x"), ("same", "same"), ("long " * 60, "x"), ("x", "long " * 60)]
TRAINING = Rules(max_length=50, drop_empty=True, drop_identical=True)


@pytest.fixture(scope="module")
def both() -> Vocabularies:
    vocabulary = train_vocabulary([side for pair in PAIRS for side in pair], units="bpe", size=330)
    return Vocabularies(vocabulary, vocabulary)


def corpus_of(folder: Path, pairs) -> Corpus:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return Corpus(((str(path),),))


def build(folder: Path, pairs, both: Vocabularies, rules: Rules = TRAINING, **options) -> Store:
    corpus = corpus_of(folder, pairs)
    return open_or_build(corpus, scan(corpus, 100), both, rules, folder / "cache", **options)


def rows(store: Store) -> list[tuple[list[int], list[int]]]:
    return [(store.source(i).tolist(), store.target(i).tolist()) for i in range(len(store))]


def expected(pairs, both: Vocabularies) -> list[tuple[list[int], list[int]]]:
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return list(zip(both.source.encode(sources), both.target.encode(targets), strict=True))


def refuse(path: Path) -> None:
    raise AssertionError(f"{path} was built again")


def test_the_store_holds_the_ids_of_every_pair_in_order(tmp_path, both, monkeypatch):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 7)
    store = build(tmp_path, PAIRS, both)
    assert rows(store) == expected(PAIRS, both)
    assert store.source_lengths.dtype == np.int32
    assert store.source_lengths.tolist() == [len(source) for source, _ in rows(store)]
    assert store.target_lengths.tolist() == [len(target) for _, target in rows(store)]
    assert all(source[-1] == EOS for source, _ in rows(store))


def test_large_vocabularies_take_wider_ids():
    assert (storing._id_type(65_536), storing._id_type(65_537)) == ("<u2", "<u4")


def test_what_training_leaves_out_is_counted(tmp_path, both):
    store = build(tmp_path, [*ODD, *PAIRS], both)
    assert rows(store) == expected(PAIRS, both)
    report = store.report
    assert (report.pairs, report.kept) == (len(PAIRS) + 5, len(PAIRS))
    assert (report.empty, report.identical, report.too_long) == (2, 1, 2)
    assert report.source_tokens == store.source_lengths.sum()
    assert report.summary().startswith("120 of 125 pairs (left out: 2 empty, 1 identical, 2 too long), ")
    assert "unknown" not in report.summary()


def test_validation_keeps_everything(tmp_path, both):
    assert rows(build(tmp_path, ODD, both, Rules())) == expected(ODD, both)


def test_rules_follow_the_settings():
    settings = DataConfig(max_length=9, identical="drop", subword_sampling=0.1)
    assert Rules.for_training(settings) == Rules(max_length=9, drop_empty=True, drop_identical=True, keep_text=True)
    assert Rules.for_training(DataConfig()) == Rules(max_length=256, drop_empty=True)


def test_max_length_counts_eos(tmp_path, both):
    (source, target), *_ = expected(PAIRS[:1], both)
    longest = max(len(source), len(target))
    assert len(build(tmp_path, PAIRS[:1], both, Rules(max_length=longest))) == 1
    with pytest.raises(DataError, match=r"no pair is left to train on: 0 of 1 pairs \(left out: 1 too long\)"):
        build(tmp_path, PAIRS[:1], both, Rules(max_length=longest - 1))


def test_validation_data_without_a_pair_are_not_called_training_data(tmp_path, both):
    with pytest.raises(DataError, match="no pair is left to validate on: 0 of 1 pairs"):
        build(tmp_path, PAIRS[:1], both, Rules.for_validation(1), purpose="validate")


def test_unknown_tokens_are_counted(tmp_path):
    vocabulary = train_vocabulary(SENTENCES, units="bpe", size=60, unknown="unk")
    report = build(tmp_path, [("☃ cat", "cat"), ("cat", "☃☃ ☃")], Vocabularies(vocabulary, vocabulary)).report
    assert (report.source_unknown, report.target_unknown) == (1, 2)
    assert report.summary().endswith("of which 1 and 2 are unknown")
    assert len(report.warnings()) == 2
    assert "set data.source_units=char" in report.warnings()[0]
    many = replace(report, source_tokens=1_000, target_tokens=1_000)
    assert many.warnings() == []


def test_reports_add_up():
    one = Report(**dict.fromkeys(asdict(Report()), 1))
    assert asdict(one + one) == dict.fromkeys(asdict(one), 2)


# --- groups


def groups_of(folder: Path, *groups) -> Corpus:
    paths = [folder / f"group{n}.tsv" for n in range(len(groups))]
    for path, pairs in zip(paths, groups, strict=True):
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return Corpus(tuple((str(path),) for path in paths))


def build_groups(folder: Path, corpus: Corpus, both: Vocabularies, rules: Rules = TRAINING) -> Store:
    return open_or_build(corpus, scan(corpus, 100), both, rules, folder / "cache")


def test_the_store_knows_how_many_pairs_of_each_group_it_kept(tmp_path, both, monkeypatch):
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 7)
    corpus = groups_of(tmp_path, [*ODD, *PAIRS[:20]], ODD, [], PAIRS[20:50])
    store = build_groups(tmp_path, corpus, both)
    assert store.groups == (20, 0, 0, 30)
    assert rows(store) == expected(PAIRS[:50], both)
    assert Store(store.path).groups == store.groups
    assert scan(corpus, 100).groups == (25, 5, 0, 30)


def test_held_out_pairs_are_counted_in_their_group(tmp_path, both):
    corpus = replace(groups_of(tmp_path, PAIRS[:20], PAIRS[20:24]), hold_out=3)
    parts = [build_groups(tmp_path, replace(corpus, part=part), both) for part in ("kept", "held out")]
    assert [sum(counts) for counts in zip(*(part.groups for part in parts), strict=True)] == [20, 4]


def test_another_cut_of_the_same_pairs_is_another_store(tmp_path, both, monkeypatch):
    """Also where the files end between two blocks, so that the blocks are the same."""
    monkeypatch.setattr(reading, "LINES_PER_BLOCK", 10)
    cuts = [(PAIRS[:40],), (PAIRS[:40], []), (PAIRS[:10], PAIRS[10:40]), (PAIRS[:20], PAIRS[20:40])]
    stores = [build_groups(tmp_path, groups_of(tmp_path, *cut), both) for cut in cuts]
    assert [store.groups for store in stores] == [(40,), (40, 0), (10, 30), (20, 20)]
    assert all(rows(store) == rows(stores[0]) for store in stores)


def test_counts_of_a_later_version_are_left_out():
    counts = {"pairs": 3, "kept": 2, "counted_one_day": 1}
    assert storing.Report.read(counts) == storing.Report(pairs=3, kept=2)


def test_a_store_of_an_older_format_is_not_opened(tmp_path, both, monkeypatch):
    monkeypatch.setattr(storing, "FORMAT", storing.FORMAT - 1)
    old = build(tmp_path, PAIRS, both).path
    meta = json.loads((old / "meta.json").read_text())
    del meta["groups"]
    (old / "meta.json").write_text(json.dumps(meta))
    monkeypatch.undo()
    assert build(tmp_path, PAIRS, both).groups == (len(PAIRS),)


def test_resampling_keeps_the_groups(tmp_path, both, monkeypatch):
    monkeypatch.setattr(storing, "LINES_PER_BLOCK", 7)
    corpus = groups_of(tmp_path, PAIRS[:20], ODD, PAIRS[20:50])
    sampled = build_groups(tmp_path, corpus, both, replace(TRAINING, keep_text=True)).resampled(both, 0.3, 1, epoch=0)
    assert sampled.groups == (20, 0, 30)
    assert both.source.decode([source for source, _ in rows(sampled)]) == [source for source, _ in PAIRS[:50]]


# --- the cache


def test_the_second_time_nothing_is_built(tmp_path, both, monkeypatch):
    first = build(tmp_path, PAIRS, both)
    monkeypatch.setattr(storing, "_write", refuse)
    again = build(tmp_path, PAIRS, both)
    assert again.path == first.path
    assert again.report == first.report


def test_whatever_matters_changes_the_key(tmp_path, both):
    other = train_vocabulary(SENTENCES, units="bpe", size=320)
    changes: list[dict[str, object]] = [{"max_length": 60}, {"drop_identical": False}, {"keep_text": True}]
    stores = [
        build(tmp_path, PAIRS, both),
        build(tmp_path, PAIRS[1:], both),
        build(tmp_path, PAIRS, Vocabularies(other, both.target)),
        build(tmp_path, PAIRS, Vocabularies(both.source, other)),
        *(build(tmp_path, PAIRS, both, replace(TRAINING, **change)) for change in changes),
    ]
    assert len({store.path for store in stores}) == len(stores)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "no manifest", "old manifest"])
def test_a_damaged_store_is_built_again_and_said(tmp_path, both, damage):
    first = build(tmp_path, PAIRS, both)
    before = rows(first)
    victim = first.path / ("files.json" if "manifest" in damage else "target.values")
    if damage == "cut":
        os.truncate(victim, victim.stat().st_size - 2)
    elif damage == "altered":
        flip(victim)
    elif damage == "old manifest":
        victim.write_text(json.dumps({name: file["size"] for name, file in json.loads(victim.read_text()).items()}))
    else:
        victim.unlink()
    said: list[str] = []
    assert rows(build(tmp_path, PAIRS, both, notify=said.append)) == before
    assert said == [f"{first.path}: incomplete or damaged: preparing it again"]
    assert [entry.name for entry in first.path.parent.iterdir()] == [first.path.name]


def test_large_entries_are_checked_by_size_alone(tmp_path, both, monkeypatch):
    first = build(tmp_path, PAIRS, both)
    flip(first.path / "target.values")
    assert not cache.is_whole(first.path)
    monkeypatch.setattr(cache, "CHECKED_BYTES", 1000)
    assert cache.is_whole(first.path)
    os.truncate(first.path / "target.values", 2)
    assert not cache.is_whole(first.path)


def test_by_default_a_rebuild_is_said_on_stderr(tmp_path, both, capsys):
    (build(tmp_path, PAIRS, both).path / "files.json").unlink()
    build(tmp_path, PAIRS, both)
    assert "preparing it again" in capsys.readouterr().err


def test_a_build_that_fails_leaves_nothing(tmp_path, both, monkeypatch):
    def interrupted(self, rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(RaggedWriter, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, PAIRS, both)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_build_left_is_never_used_and_cleared_later(tmp_path, both):
    (tmp_path / "cache").mkdir()
    old, young = tmp_path / "cache" / ".building-old", tmp_path / "cache" / ".building-young"
    for left in (old, young):
        left.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    assert rows(build(tmp_path, PAIRS, both)) == expected(PAIRS, both)
    assert (old.exists(), young.exists()) == (False, True)


def test_builders_of_the_same_store_do_not_disturb_each_other(tmp_path, both):
    corpus = corpus_of(tmp_path, PAIRS)
    found = scan(corpus, 100)
    with ThreadPoolExecutor(6) as pool:
        work = [pool.submit(open_or_build, corpus, found, both, TRAINING, tmp_path / "cache") for _ in range(12)]
        assert all(rows(built.result()) == expected(PAIRS, both) for built in work)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_full_disk_is_one_line(tmp_path, both, monkeypatch):
    def full(self, rows):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RaggedWriter, "append", full)
    with pytest.raises(DataError) as caught:
        build(tmp_path, PAIRS, both)
    assert str(caught.value) == (
        f"{tmp_path}/cache: prepared data cannot be written: no space left on device: free some space or choose "
        "another place with data.cache or $TRANSDUCE_CACHE"
    )
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_is_one_line(tmp_path, both):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"cannot be written: .*: choose another place with data\.cache"):
        build(tmp_path, PAIRS, both)


def test_the_cache_folder(monkeypatch):
    monkeypatch.delenv("TRANSDUCE_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder("") == Path("/home/me/.cache/transduce")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder("") == Path("/xdg/transduce")
    monkeypatch.setenv("TRANSDUCE_CACHE", "/elsewhere")
    assert cache_folder("") == Path("/elsewhere")
    assert cache_folder("~/here") == Path("/home/me/here")


# --- sampled segmentation


def test_resampling_is_a_function_of_seed_and_epoch(tmp_path, both, monkeypatch):
    monkeypatch.setattr(storing, "LINES_PER_BLOCK", 50)
    store = build(tmp_path, PAIRS, both, replace(TRAINING, keep_text=True))
    first = store.resampled(both, 0.3, seed=1, epoch=0)
    assert rows(first) == rows(store.resampled(both, 0.3, seed=1, epoch=0))
    others = [store.resampled(both, 0.3, seed=1, epoch=1), store.resampled(both, 0.3, seed=2, epoch=0), store]
    assert all(rows(first) != rows(other) for other in others)
    assert both.source.decode([source for source, _ in rows(first)]) == [source for source, _ in PAIRS]
    assert both.target.decode([target for _, target in rows(first)]) == [target for _, target in PAIRS]
    assert [entry for entry in (tmp_path / "cache").iterdir() if entry.name.startswith(".")] == []


def test_resampling_respects_the_longest_length(tmp_path, both):
    longest = max(len(side) for pair in expected(PAIRS, both) for side in pair)
    store = build(tmp_path, PAIRS, both, Rules(max_length=longest + 1, keep_text=True))
    sampled = store.resampled(both, 0.1, seed=1, epoch=0)
    plain = [a == b for a, b in zip(rows(sampled), rows(store), strict=True)]
    assert max(sampled.source_lengths.max(), sampled.target_lengths.max()) <= longest + 1
    assert 0 < sum(plain) < len(PAIRS)


# --- vocabularies in the cache


def settings_for(**changes) -> DataConfig:
    return DataConfig(**{"source_units": "bpe", "target_units": "bpe", "vocabulary_size": 330, **changes})


def test_a_vocabulary_is_learned_once(tmp_path, monkeypatch):
    found = scan(corpus_of(tmp_path, PAIRS), 100)
    joint = learn_vocabularies(found, settings_for(), tmp_path / "cache")
    assert joint.source is joint.target
    monkeypatch.setattr("transduce.data.vocabularies.train_vocabulary", refuse)
    assert learn_vocabularies(found, settings_for(), tmp_path / "cache").source.model == joint.source.model


def test_separate_vocabularies_see_their_own_side(tmp_path):
    found = scan(corpus_of(tmp_path, [("aaa", "bbb"), ("aa", "b")]), 100)
    settings = settings_for(joint=False, source_units="char", target_units="word", symbols=(">>x<<",))
    learned = learn_vocabularies(found, settings, tmp_path / "cache")
    assert "a" in learned.source.pieces(range(learned.source.size))
    assert "b" not in learned.source.pieces(range(learned.source.size))
    assert "▁bbb" in learned.target.pieces(range(learned.target.size))
    assert learned.source.encode([">>x<<"])[0][:-1] == [2]


def test_features_are_symbols_of_the_vocabulary(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("gehen\tging\tV;PST\nsehen\tsah\tV;PST\n")
    found = scan(Corpus(((str(path),),), columns=Columns(features="3")), 100)
    learned = learn_vocabularies(found, settings_for(source_units="char", target_units="char"), tmp_path / "cache")
    row = learned.source.encode(["gehen ;V;PST"])[0]
    assert learned.source.pieces(row)[-3:] == [";V", ";PST", "</s>"]


def test_an_altered_vocabulary_is_learned_again_and_said(tmp_path):
    found = scan(corpus_of(tmp_path, PAIRS), 100)
    learned = learn_vocabularies(found, settings_for(), tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    flip(entry / "model")
    said: list[str] = []
    again = learn_vocabularies(found, settings_for(), tmp_path / "cache", notify=said.append)
    assert again.source.model == learned.source.model
    assert said == [f"{entry}: incomplete or damaged: preparing it again"]


def test_rows_of_nothing(tmp_path):
    with RaggedWriter(tmp_path, "x") as writer:
        writer.append(Rows.of_ids([], "<u2"))
        writer.append(Rows.of_ids([[1, 2], [], [3]], "<u2"))
    assert np.fromfile(tmp_path / "x.offsets", "<i8").tolist() == [0, 2, 2, 3]
