"""Translating corpora in shards: every line exactly once, in order, whatever fails, in every format and form of running."""

import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from folders import edit_config, lines, write_folder

import transduce
from transduce.batch_translation import BatchRequest, Where, local, translate_corpus
from transduce.batch_translation.folder import BatchFolder, process_name
from transduce.batch_translation.formats import Range
from transduce.batch_translation.line_formats import TextLines, TsvLines
from transduce.batch_translation.progress import Progress, duration
from transduce.batch_translation.run import prepare
from transduce.batch_translation.schedule import FAILURES, LOSSES, Schedule
from transduce.batch_translation.worker import ShardError, Worker
from transduce.cli import main
from transduce.config.columns import Columns
from transduce.errors import DamagedFile, DataError, MissingExtra, RunError, SettingError
from transduce.translator import LoadOptions, Output, Translation, Translator

TORCH = LoadOptions(engine="torch", device="cpu", threads=1, say=lambda text: None)
FORM = ["--engine", "torch", "--device", "cpu", "--threads", "1", "--beam", "1"]
TEXTS = [*lines(40), "", "  ", *lines(9, seed=2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "run")


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run, TORCH)


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    return translator.translate(TEXTS, beam=1)


def write(path: Path, texts: Sequence[str]) -> str:
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    return str(path)


def request(run: Path, inputs: Sequence[str], **changes: Any) -> BatchRequest:
    search = Translator.load(run, TORCH).request(beam=1)
    return BatchRequest(run=run, inputs=inputs, search=search, options=TORCH, **{"shard_rows": 8, **changes})


def joined(folder: Path) -> str:
    transduce.collect_batch(folder, folder.parent / "joined")
    return (folder.parent / "joined").read_text()


# --- from files to translations --------------------------------------------------------------------------------


def test_a_corpus_is_translated_resumed_verified_and_joined(
    run: Path, tmp_path: Path, expected: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = write(tmp_path / "a.txt", TEXTS[:30]), write(tmp_path / "b.txt", TEXTS[30:])
    command = ["batch", str(run), one, two, "-o", str(tmp_path / "out"), "--shard-lines", "8", *FORM]
    assert main([*command, "--json"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["shards"], told["finished"], told["lines"], told["translated"]) == (7, 7, 51, 51)
    assert "7 of 7 shards are finished, 51 of 51 lines are translated, in " in said.err
    assert len(list((tmp_path / "out").glob("shard-??????.*.txt"))) == 7
    assert not list((tmp_path / "out").glob(".*"))
    monkeypatch.setattr(Worker, "open", lambda *given: pytest.fail("nothing is left to translate"))
    assert main([*command, "--verify", "--collect", str(tmp_path / "all.txt")]) == 0
    assert "verified 7 shards, 51 lines" in capsys.readouterr().err
    assert (tmp_path / "all.txt").read_text() == "".join(f"{text}\n" for text in expected)
    assert main(["batch", "-o", str(tmp_path / "out"), "--collect", str(tmp_path / "all.gz"), "--quiet"]) == 0
    assert gzip.decompress((tmp_path / "all.gz").read_bytes()) == (tmp_path / "all.txt").read_bytes()
    assert capsys.readouterr().err == ""


def test_options_may_stand_before_the_files(run: Path, tmp_path: Path) -> None:
    given = write(tmp_path / "a", TEXTS[:3])
    assert main(["batch", str(run), *FORM, given, "-o", str(tmp_path / "out"), "--prepare", "--quiet"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("kind", ["a.txt.gz", "number.tsv", "name.tsv.xz", "a.jsonl", "a.parquet"])
def test_tables_keep_their_columns(kind: str, run: Path, tmp_path: Path, expected: list[str]) -> None:
    texts = [text for text in TEXTS if text.strip()]
    found = [text for source, text in zip(TEXTS, expected, strict=True) if source.strip()]
    path, columns = tmp_path / kind, {"number.tsv": "source=2", "name.tsv.xz": "source=text"}.get(kind, "source=text")
    rows = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    table = [f"{row['id']}\t{row['text']}" for row in rows]
    if kind == "a.parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=5)
    elif kind == "a.jsonl":
        write(path, [json.dumps(row) for row in rows])
    elif kind == "number.tsv":
        write(path, table)
    elif kind == "name.tsv.xz":
        import lzma

        path.write_bytes(lzma.compress("".join(f"{line}\n" for line in ["id\ttext", *table]).encode()))
    else:
        path.write_bytes(gzip.compress("".join(f"{text}\r\n" for text in texts).encode()))
    wanted = request(run, [str(path)], columns="" if kind == "a.txt.gz" else columns)
    result = translate_corpus(wanted, tmp_path / "out")
    assert (result.finished, result.lines) == (7, len(texts))
    assert transduce.verify_batch(tmp_path / "out").is_complete
    transduce.collect_batch(tmp_path / "out", tmp_path / "joined")
    if kind == "a.parquet":
        assert parquet.read_table(tmp_path / "joined").to_pylist() == [
            {**row, "translation": text} for row, text in zip(rows, found, strict=True)
        ]
        return
    lines_found = (tmp_path / "joined").read_text().split("\n")[:-1]
    if kind == "a.jsonl":
        assert [json.loads(line) for line in lines_found] == [
            {**row, "translation": text} for row, text in zip(rows, found, strict=True)
        ]
    elif kind.startswith("a.txt"):
        assert lines_found == found
    else:
        header = ["id\ttext\ttranslation"] if kind == "name.tsv.xz" else []
        assert lines_found == header + [f"{line}\t{text}" for line, text in zip(table, found, strict=True)]


def test_what_is_no_text_stays_a_line(run: Path, tmp_path: Path) -> None:
    """Blank lines of tables, bytes that are not UTF-8, half characters in JSON, and a last line without its end."""
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "rain"}\n\n{"text": "\\ud800 rain", "more": "\\udfff"}')
    translate_corpus(request(run, [str(tmp_path / "a.jsonl")], columns="source=text"), tmp_path / "json")
    first, blank, last = joined(tmp_path / "json").split("\n")[:-1]
    assert json.loads(first)["translation"]
    assert blank == ""
    assert json.loads(last)["more"] == "\udfff"
    (tmp_path / "a.txt").write_bytes(b"rain\n\xff\xfe rain\nthe cat")
    result = translate_corpus(request(run, [str(tmp_path / "a.txt")]), tmp_path / "text")
    assert (result.lines, result.counts["undecodable"]) == (3, 1)
    (tmp_path / "a.tsv").write_bytes(b"rain\tx\n\nthe\n")
    translate_corpus(request(run, [str(tmp_path / "a.tsv")], columns="source=1"), tmp_path / "tsv")
    assert [line.count("\t") for line in joined(tmp_path / "tsv").split("\n")[:-1]] == [2, 0, 1]


@pytest.mark.parametrize("heading", [0, 1])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_ranges_cover_every_line_once(heading: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.batch_translation.line_formats.CHUNK", 7)
    form = TsvLines(Columns("text" if heading else "1", "", ""), "translation") if heading else TextLines()
    draw = random.Random(rows)
    for _ in range(40):
        texts = ["x" * draw.randint(0, 9) for _ in range(draw.randint(0, 9))]
        content = "\n".join([*["text"][:heading], *texts]) + "\n" * draw.randint(0, 1)
        (tmp_path / "a").write_text(content)
        expected = content.removesuffix("\n").split("\n")[heading:] if content else []
        parts = list(form.ranges(str(tmp_path / "a"), rows))
        assert [part.rows for part in parts[:-1]] == [rows] * (len(parts) - 1)
        found = [row for part in parts for block in form.read(part) for row in block.kept]
        assert found == expected
        slow = [Range(part.path, part.first, part.rows, None) for part in parts]  # as of a compressed file
        assert [row for part in slow for block in form.read(part) for row in block.kept] == expected


def test_samples_of_different_shards_differ_and_those_of_one_do_not(run: Path, tmp_path: Path) -> None:
    given = write(tmp_path / "a", ["the cat sat on a mat"] * 8)
    search = Translator.load(run, TORCH).request(sampling=True, seed=3)
    wanted = BatchRequest(run=run, inputs=[given], search=search, options=TORCH, shard_rows=4)
    for name in ("one", "two"):
        translate_corpus(wanted, tmp_path / name)
    assert joined(tmp_path / "one") == joined(tmp_path / "two")
    found = joined(tmp_path / "one").split("\n")[:-1]
    assert found[:4] != found[4:]


# --- whatever dies ---------------------------------------------------------------------------------------------


class Failing:
    """A translator to upper case that fails for one text, or that stops the command after some lines."""

    def __init__(self, bad: str = "-", stop_after: int = 10**9) -> None:
        self.bad, self.stop_after, self.lines = bad, stop_after, 0

    def stream(self, texts: Iterator[str], request: object) -> Iterator[Any]:
        for text in texts:
            self.lines += 1
            if self.lines > self.stop_after:
                raise KeyboardInterrupt
            [found] = self.translate([text], request, as_text=False)
            yield found

    def translate(self, texts: Sequence[str], request: object, as_text: bool = True) -> Any:
        if self.bad in texts:
            raise RuntimeError("out of memory")
        found = [Translation(text, [Output(text.upper(), [], 0, 0, [])]) for text in texts]
        return [one.text for one in found] if as_text else found


class Overtaken(Failing):
    """A translator that is slower than another worker at the same shard."""

    def __init__(self, faster: Worker) -> None:
        super().__init__()
        self.faster = faster

    def stream(self, texts: Iterator[str], request: object) -> Iterator[Any]:
        yield from super().stream(texts, request)
        self.faster.translate(5)
        self.faster.folder.temporary(5, process_name()).unlink(missing_ok=True)  # as of another process


def test_an_interrupted_batch_goes_on_where_it_was(run: Path, tmp_path: Path) -> None:
    wanted, out = request(run, [write(tmp_path / "a", TEXTS)]), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        translate_corpus(wanted, out, translator=Failing(stop_after=20))  # type: ignore[arg-type]
    assert sorted(BatchFolder(out).finished()) == [0, 1]
    assert not list(out.glob(".shard*"))
    with pytest.raises(RunError, match=r"5 of 7 shards are not finished \(the first is 2\)"):
        transduce.collect_batch(out, tmp_path / "joined")
    again = Failing()
    assert translate_corpus(wanted, out, translator=again).translated == again.lines == len(TEXTS) - 16  # type: ignore[arg-type]
    assert joined(out) == "".join(f"{text.upper()}\n" for text in TEXTS)


def test_a_line_that_fails_is_named_and_its_shard_set_aside(
    run: Path,
    translator: Translator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, out, said = write(tmp_path / "a", TEXTS), tmp_path / "out", list[str]()
    wanted = request(run, [path])
    wanted = BatchRequest(**{**vars(wanted), "options": LoadOptions(engine="torch", threads=1, say=said.append)})
    result = translate_corpus(wanted, out, translator=Failing(TEXTS[11]))  # type: ignore[arg-type]
    [failure] = result.failures
    assert (failure.shard, failure.attempts, result.finished, result.lines) == (1, FAILURES, 6, len(TEXTS) - 8)
    assert failure.reason == f"{path}:12: RuntimeError: out of memory: {TEXTS[11]!r}"
    assert [f"{path}:12" in line for line in said if line.startswith("shard 1")] == [True] * FAILURES
    assert transduce.verify_batch(out).missing == {1: failure.reason}
    with monkeypatch.context() as patch:
        patch.setattr(
            Worker,
            "open",
            lambda *given: Worker(BatchFolder(out), BatchFolder(out).manifest(), Failing(TEXTS[11])),
        )  # type: ignore[arg-type]
        assert main(["batch", str(run), path, "-o", str(out), "--shard-lines", "8", *FORM, "--quiet"]) == 3
        assert "shard 1 was set aside" in capsys.readouterr().err
        assert main(["batch", "-o", str(out), "--verify", "--collect", str(tmp_path / "no")]) == 3
        assert not (tmp_path / "no").exists()
    assert not translate_corpus(wanted, out, translator=translator).failures, "the cause was mended"
    assert transduce.verify_batch(out).is_complete
    assert not list(out.glob("failed-*"))


def test_a_malformed_line_is_named(run: Path, translator: Translator, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", ["text\tid", *(f"{text}\t1" for text in lines(12)), "alone"])
    wanted = request(run, [path], columns="source=id")
    result = translate_corpus(wanted, tmp_path / "out", translator=translator)
    [failure] = result.failures
    assert failure.reason == f"{path}:14: has 1 of the 2 columns that --columns names"
    assert failure.attempts == 1, "another attempt would fail as well"
    assert result.finished == 1


def test_two_attempts_at_a_shard_are_harmless(
    run: Path, translator: Translator, tmp_path: Path, expected: list[str]
) -> None:
    wanted, out = request(run, [write(tmp_path / "a", TEXTS)]), tmp_path / "out"
    manifest = prepare(wanted, out)
    worker, folder = Worker(BatchFolder(out), manifest, translator), BatchFolder(out)
    stale = folder.temporary(3, "other-machine-1")
    stale.write_text("half of it")
    for number in (3, 3, 0):
        worker.translate(number)
    assert not stale.exists(), "what a dead attempt left"
    assert len(list(out.glob("shard-000003*"))) == 1
    Worker(folder, manifest, Overtaken(worker)).translate(5)  # type: ignore[arg-type]
    assert len(list(out.glob("*shard-000005*"))) == 1
    for content in ("bytes of another GPU\n", "bytes of a third\n"):  # not equal, though equally good
        temporary = folder.temporary(3, "other")
        temporary.write_text(content)
        folder.finish(3, temporary, "txt")
    assert len(list(out.glob("shard-000003*"))) == 1
    shutil.copy(folder.finished()[0], out / f"shard-000000.{'f' * 16}.txt")
    assert folder.finished()[0].name < f"shard-000000.{'f' * 16}.txt", "readers agree on one"


def test_the_count_is_checked_before_the_name_is_given(run: Path, translator: Translator, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a", TEXTS))
    manifest = prepare(request(run, [str(path)]), tmp_path / "out")
    content = path.read_bytes()
    path.write_bytes(content[::-1].replace(b"\n", b" ", 2)[::-1])  # as long, but with one line fewer
    worker = Worker(BatchFolder(tmp_path / "out"), manifest, translator)
    with pytest.raises(ShardError, match="the shard has 3 lines, but 2 were written"):
        worker.translate(6)
    assert not BatchFolder(tmp_path / "out").finished()
    path.write_bytes(content + b"more\n")
    with pytest.raises(DataError, match="when the batch began"):
        worker.translate(0)


def test_processes_that_are_killed_are_replaced(
    run: Path, tmp_path: Path, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process is killed while it works on a shard. Both share one core, and write the same bytes as one."""
    given = write(tmp_path / "a", TEXTS)
    killed: list[int] = []
    answer = local.WorkerThread._answer

    def kill_once(self: local.WorkerThread) -> dict[str, Any]:
        if not killed and self.process is not None and BatchFolder(tmp_path / "out").finished():
            killed.append(self.process.pid)
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return {}
        return answer(self)

    monkeypatch.setattr(local.WorkerThread, "_answer", kill_once)
    said: list[str] = []
    wanted = request(run, [given])
    wanted = BatchRequest(
        **{**vars(wanted), "options": LoadOptions(engine="torch", device="cpu", threads=1, say=said.append)}
    )
    result = translate_corpus(wanted, tmp_path / "out", Where(workers=1))
    assert killed
    assert any("the process died at or after this line (SIGKILL); it will be tried again" in line for line in said)
    assert (result.finished, result.lines, result.failures) == (7, len(TEXTS), [])
    assert len(TEXTS) - result.translated in (0, 8)  # killed right after a shard, it could not report it
    assert joined(tmp_path / "out") == "".join(f"{text}\n" for text in expected)


def test_a_worker_that_cannot_load_its_model_ends_the_command(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    wanted = request(own, [write(tmp_path / "a", TEXTS)])
    prepare(wanted, tmp_path / "out")
    (own / "best.safetensors").write_bytes((own / "best.safetensors").read_bytes()[:-8])
    schedule = Schedule(BatchFolder(tmp_path / "out"), [0])
    progress = Progress(BatchFolder(tmp_path / "out").manifest(), [0], set(), TORCH.say)
    with pytest.raises(RunError, match=r"best\.safetensors"):
        local.run_processes(tmp_path / "out", 1, 1, [], schedule, progress)


def test_no_process_is_left_of_a_worker_that_is_stopped_while_it_loads_its_model(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a notebook, or the fatal error of another worker."""
    started: list[subprocess.Popen[str]] = []

    def start(_: local.WorkerThread) -> subprocess.Popen[str]:
        program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        started.append(subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    def answer(self: local.WorkerThread) -> dict[str, Any]:
        while not self.stopping:
            time.sleep(0.01)
        assert self.process is not None
        self.process.wait()
        return {}

    monkeypatch.setattr(local.WorkerThread, "_start", start)
    monkeypatch.setattr(local.WorkerThread, "_answer", answer)  # notices the end after `stop` has returned
    manifest = prepare(request(run, [write(tmp_path / "a", TEXTS)]), tmp_path / "out")
    schedule = Schedule(BatchFolder(tmp_path / "out"), [0, 1])
    worker = local.WorkerThread(tmp_path / "out", 1, "", schedule, Progress(manifest, [0, 1], set(), TORCH.say))
    worker.start()
    while worker.process is None:
        time.sleep(0.01)
    worker.stop()
    worker.join(10.0)
    running = [process for process in started if process.poll() is None]
    for process in running:
        process.kill()
    assert not worker.is_alive()
    assert not running


def test_a_shard_survives_more_lost_workers_than_failures(tmp_path: Path) -> None:
    schedule = Schedule(BatchFolder(tmp_path), [4, 5])
    assert [schedule.take(), schedule.take(), schedule.take()] == [4, 5, None]
    for _ in range(LOSSES - 1):
        assert schedule.failed(4, "taken away", worker_lost=True) is None
        assert schedule.take() == 4
    assert schedule.failed(4, "taken away", worker_lost=True)
    (tmp_path / f"shard-000005.{'0' * 16}.txt").touch()
    schedule.failed(5, "but another command finished it")
    assert schedule.take() is None


def test_the_figures_of_the_progress_add_up(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = prepare(request(run, [write(tmp_path / "a", TEXTS)]), tmp_path / "out")
    said: list[str] = []
    progress = Progress(manifest, list(range(7)), {0}, said.append)
    monkeypatch.setattr(progress, "begun", progress.begun - 10)
    schedule = Schedule(BatchFolder(tmp_path / "out"), [1, 2], progress.finished_elsewhere)
    (tmp_path / "out" / f"shard-000001.{'0' * 16}.txt").touch()  # by another command
    assert schedule.take() == 2
    monkeypatch.setattr(progress, "said", 0.0)
    progress.advanced(5)
    assert said == [
        "2 of 7 shards are finished, 21 of 51 lines are translated, 5 of them in 10 s (0 lines/s); 60 s left"
    ]


# --- several machines ------------------------------------------------------------------------------------------


def test_tasks_of_an_array_share_the_shards(
    run: Path, translator: Translator, tmp_path: Path, expected: list[str]
) -> None:
    wanted = request(run, [write(tmp_path / "a", TEXTS)])
    results = [translate_corpus(wanted, tmp_path / "out", Where(task=n, tasks=3), translator) for n in (2, 0, 1)]
    assert [(one.shards, one.finished, one.translated) for one in results] == [(2, 2, 16), (3, 3, 19), (2, 2, 16)]
    assert joined(tmp_path / "out") == "".join(f"{text}\n" for text in expected)


@pytest.mark.slow
def test_a_ray_cluster_translates_and_replaces_killed_actors(
    run: Path, tmp_path: Path, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    import ray

    from transduce.batch_translation import on_ray

    killed: list[int] = []
    send = on_ray.Dispatch._send

    def kill_first(self: on_ray.Dispatch, actor: Any) -> bool:
        sent = send(self, actor)
        if not killed and sent:
            killed.append(1)
            [(_, busy)] = list(self.flying.values())[:1]
            ray.kill(busy)
        return sent

    monkeypatch.setattr(on_ray.Dispatch, "_send", kill_first)
    said: list[str] = []
    wanted = request(run, [write(tmp_path / "a", TEXTS)])
    wanted = BatchRequest(
        **{**vars(wanted), "options": LoadOptions(engine="torch", device="cpu", threads=1, say=said.append)}
    )
    result = translate_corpus(wanted, tmp_path / "out", Where(on="ray", workers=2))
    assert any("the actor was lost" in line for line in said)
    assert (result.finished, result.lines, result.failures) == (7, len(TEXTS), [])
    assert joined(tmp_path / "out") == "".join(f"{text}\n" for text in expected)


@pytest.mark.slow
def test_ray_data_translates_a_column(run: Path, expected: list[str]) -> None:
    """In its actors, with the order of rows if it is asked for."""
    ray = pytest.importorskip("ray")
    program = f"""
import ray, transduce
from transduce import LoadOptions
ray.init(num_cpus=2, log_to_driver=False)
ray.data.DataContext.get_current().execution_options.preserve_order = True
dataset = ray.data.from_items([{{"text": text}} for text in {TEXTS!r}]).map_batches(
    transduce.TableTranslator,
    fn_constructor_args=({str(run)!r}, "text"),
    fn_constructor_kwargs={{"beam": 1, "options": LoadOptions(engine="torch", threads=1)}},
    batch_size=16,
    concurrency=2,
)
assert [row["translation"] for row in dataset.take_all()] == {expected!r}
"""
    assert ray
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)


def test_a_worker_whose_driver_is_gone_ends_silently(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "transduce.batch_translation.worker_process", str(tmp_path), "1"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        assert worker.stdout
        assert worker.stderr
        worker.stdout.close()
        assert worker.stderr.read() == b""
        assert worker.wait(timeout=60) == 1


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc of Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_driver(number: int, run: Path, tmp_path: Path) -> None:
    """A killed command leaves no processes behind, and the next one finishes its work."""
    given = write(tmp_path / "a", TEXTS * 400)
    command = ["batch", str(run), given, "-o", str(tmp_path / "out"), "--shard-lines", "500", *FORM, "--workers", "2"]
    driver = subprocess.Popen([sys.executable, "-m", "transduce", *command, "--quiet"])
    while not list((tmp_path / "out").glob("shard-*")):
        assert driver.poll() is None
        time.sleep(0.05)
    driver.send_signal(number)
    driver.wait(timeout=60)
    mark = f"worker_process\0{tmp_path / 'out'}".encode()
    deadline = time.monotonic() + 60
    while any(mark in line for line in command_lines()):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.1)
    assert main([*command, "--quiet"]) == 0
    assert transduce.verify_batch(tmp_path / "out").is_complete


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it may have ended
            yield (process / "cmdline").read_bytes()


# --- refusals --------------------------------------------------------------------------------------------------


def test_other_work_over_the_same_folder_is_refused(run: Path, translator: Translator, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a", TEXTS))
    wanted, out = request(run, [str(path)]), tmp_path / "out"
    prepare(wanted, out)
    other = BatchRequest(**{**vars(wanted), "search": translator.request(beam=3)})
    with pytest.raises(RunError, match="was begun with beam = 1 instead of 3; give another folder"):
        prepare(other, out)
    with pytest.raises(RunError, match="shard_lines = 8 instead of 9"):
        prepare(request(run, [str(path)], shard_rows=9), out)
    with pytest.raises(RunError, match=r"another model \("):
        prepare(BatchRequest(**{**vars(wanted), "run": Path(__file__).parent / "frozen" / "0.1.0"}), out)
    moved = shutil.copy(path, tmp_path / "b")
    assert prepare(request(run, [str(moved)]), out).inputs[0].path == str(moved), "the same lines, elsewhere"
    path.write_text("something else\n")
    with pytest.raises(RunError, match="was begun with other inputs"):
        prepare(request(run, [str(path)]), out)
    (out / "manifest.json").write_text("{")
    with pytest.raises(DamagedFile, match="not the manifest of a batch"):
        prepare(wanted, out)


def test_what_is_wrong_with_finished_files_is_found(run: Path, translator: Translator, tmp_path: Path) -> None:
    path, out = Path(write(tmp_path / "a", TEXTS)), tmp_path / "out"
    translate_corpus(request(run, [str(path)]), out, translator=translator)
    files = BatchFolder(out).finished()
    files[1].write_bytes(files[1].read_bytes()[:-1])
    with pytest.raises(RunError, match="modified or damaged after it was written: delete it and rerun"):
        transduce.collect_batch(out, tmp_path / "joined")
    files[2].unlink()
    path.write_bytes(path.read_bytes().swapcase())
    found = transduce.verify_batch(out)
    assert (found.damaged, found.missing, found.changed) == ([str(files[1])], {2: ""}, [str(path)])
    assert not found.is_complete


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.txt", "--columns", "source=1"], "is plain text, which has no columns"),
        (["a.tsv"], "name the column to translate: --columns source=2"),
        (["a.txt", "a.tsv"], "all inputs must have one format"),
        (["none.txt"], "none.txt: cannot be read: no such file"),
        (["*.nothing"], "no file matches this pattern"),
        (["a.txt", "a.txt"], "given twice"),
        (["empty.txt"], "the input is empty"),
        (["."], "not a regular file"),
        (["a.tsv", "--columns", "source=name"], "no column 'name' in the header line, which has id, text"),
        (["a.tsv", "--columns", "source=id", "--into", "text"], "already has a column 'text'"),
        (["a.tsv", "--columns", "source=id", "--into", ""], "--into '': give the column a name"),
        (["a.tsv", "--columns", "source=5"], "a.tsv:1: has 2 of the 5 columns that --columns names"),
        (["a.jsonl", "--columns", "source=txt"], "a.jsonl:1: no text under the key 'txt'; its keys are text"),
        (["a.txt", "garbage"], "garbage: its first lines are not UTF-8 text: convert it with iconv"),
        (["utf16.txt"], "utf16.txt: its first lines are not UTF-8 text"),
        (["a.txt", "--to", "de"], "target language 'de': "),
        (["a.jsonl", "--columns", "source=1"], "JSONL has keys, not numbers"),
        (["a.txt", "--shard-lines", "0"], "shard_lines = 0: must be from 1"),
        (["a.txt", "--workers", "-1"], "workers = -1: must be from 0"),
        (["a.txt", "--shard", "3", "--shards", "3"], "tasks are numbered from 0, as with sbatch --array=0-2"),
        (["a.txt", "--shard", "3"], "--shard and --shards belong together"),
        (["a.txt", "--shard", "0", "--shards", "2", "--collect", "x"], "run them after all tasks"),
        (["a.txt", "--threads", "-1"], "must not be negative"),
        (["a.txt", "--temperature", "2"], "has no effect without --sample"),
        ([], "no files to translate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", TEXTS)
    write(tmp_path / "a.tsv", ["id\ttext", "1\train"])
    write(tmp_path / "a.jsonl", ['{"text": "rain"}'])
    (tmp_path / "empty.txt").touch()
    (tmp_path / "garbage").write_bytes(random.Random(1).randbytes(5_000))
    (tmp_path / "utf16.txt").write_text("rain and more rain\n", encoding="utf-16")
    assert main(["batch", str(run), *arguments, "-o", "out"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_batch_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write(tmp_path / "a", TEXTS)
    for arguments, message in (
        ([str(run), given, "-o", given], "is a file; give a folder"),
        ([str(run), given, "-o", str(tmp_path)], "the folder is not empty and is not a batch"),
        (["-o", str(tmp_path), "--verify"], "not a batch (it has no manifest.json)"),
        (["-o", str(tmp_path)], "give a run folder and files to translate"),
    ):
        assert main(["batch", *arguments, *FORM]) == 2
        assert message in capsys.readouterr().err


def test_a_missing_package_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").touch()
    monkeypatch.setattr("transduce.batch_translation.parquet.find_spec", lambda name: None)
    monkeypatch.setattr("transduce.batch_translation.run.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'transduce\[parquet\]'"):
        prepare(request(run, [str(tmp_path / "a.parquet")], columns="source=text"), tmp_path / "out")
    with pytest.raises(MissingExtra, match=r"pip install 'transduce\[ray\]'"):
        Where(on="ray")


def test_a_damaged_parquet_file_and_its_columns_are_named(run: Path, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 but no parquet")
    with pytest.raises(DataError, match="not a parquet file"):
        prepare(request(run, [str(path)], columns="source=text"), tmp_path / "out")
    parquet.write_table(arrow.table({"n": [1], "translation": ["x"], "text": ["rain"]}), path)
    for columns, message in (("source=m", "no column 'm'; its columns are n,"), ("source=n", "holds int64, not text")):
        with pytest.raises(DataError, match=message):
            prepare(request(run, [str(path)], columns=columns), tmp_path / "out")
    with pytest.raises(DataError, match="already has a column 'translation'"):
        prepare(request(run, [str(path)], columns="source=text"), tmp_path / "out")
    with pytest.raises(SettingError, match="names, not numbers"):
        prepare(request(run, [str(path)], columns="source=1"), tmp_path / "out")


def test_a_model_that_changes_meanwhile_is_refused(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    prepare(request(own, [write(tmp_path / "a", TEXTS)]), tmp_path / "out")
    shutil.rmtree(own)
    shutil.copytree(Path(__file__).parent / "frozen" / "0.1.0", own)
    with pytest.raises(RunError, match="the model has changed since"):
        Worker.open(tmp_path / "out", 1, TORCH.say)


@pytest.mark.parametrize(
    ("seconds", "words"), [(4, "4 s"), (89, "89 s"), (100, "2 min"), (9_000, "2.5 h"), (200_000, "2.3 days")]
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# --- inside other engines --------------------------------------------------------------------------------------


def test_tables_of_other_engines_get_a_column(run: Path, expected: list[str]) -> None:
    """The contracts: Ray Data gives dictionaries of arrays, frames or Arrow tables; Spark an iterator of frames."""
    import pickle

    import numpy

    table = pickle.loads(
        pickle.dumps(
            transduce.TableTranslator(str(run), "text", beam=1, options=LoadOptions(engine="torch", threads=1))
        )
    )
    values = [*TEXTS[:5], None]
    wanted = [*expected[:5], ""]
    arrays = {"text": numpy.array(values, dtype=object), "id": numpy.arange(6)}
    found = table(arrays)
    assert list(found) == ["text", "id", "translation"]
    assert list(found["translation"]) == wanted
    again = pickle.loads(pickle.dumps(table))
    assert again._translator is None, "weights do not travel"
    with pytest.raises(DataError, match="no column 'text' to translate; the columns are other"):
        table({"other": arrays["text"]})
    with pytest.raises(DataError, match="already has a column 'translation'"):
        table(found)
    with pytest.raises(DataError, match="holds int64 values, not text"):
        table({"text": arrays["id"]})
    arrow = pytest.importorskip("pyarrow")
    assert table(arrow.table({"text": values})).column("translation").to_pylist() == wanted
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": [*values[:5], pandas.NA]}, index=range(10, 16), dtype=object)
    both = list(table.frames(iter([frame, frame[:2]])))
    assert [list(one["translation"]) for one in both] == [wanted, wanted[:2]]
    assert list(both[0].index) == list(frame.index)
    assert "translation" not in frame


def test_settings_of_a_model_are_those_of_its_batch(run: Path, tmp_path: Path) -> None:
    own = tmp_path / "run"
    shutil.copytree(run, own)
    edit_config(own, "beam = 4", "beam = 2")
    transduce.batch(own, write(tmp_path / "a", TEXTS[:3]), tmp_path / "out", options=TORCH, prepare_only=True)
    assert BatchFolder(tmp_path / "out").manifest().search["beam"] == 2
