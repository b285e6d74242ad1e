"""A process that is forked after a model was loaded has none of its threads: it is told so, and does not wait forever."""

import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FROZEN = Path(__file__).parent / "frozen" / "0.1.0"
PROGRAM = """
import multiprocessing, sys, warnings
warnings.simplefilter("ignore")  # of forking with threads, which is the point
import transduce

def work(answers):
    try:
        answers.put(model.translate(["abc"])[0])
    except transduce.errors.RunError as error:
        answers.put(f"refused: {error}")

def asked():
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=work, args=(answers,), daemon=True)
    child.start()
    try:
        return answers.get(timeout=100)
    except Exception:
        return "no answer"
    finally:
        child.kill()

if __name__ == "__main__":
    import transduce.errors
    from transduce.translator import LoadOptions, Translator

    path, engine = sys.argv[1:]
    if engine == "later":
        model = Translator.load(path, LoadOptions(threads=1))  # nothing is loaded yet, and the child loads for itself
    else:
        model = transduce.load(path, engine=engine, threads=1)
        print(model.translate(["abc"])[0] != "", file=sys.stderr)
    print(asked())
    print(model.translate(["abc"])[0])  # this process is not affected
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.parametrize("engine", ["torch", "ct2", "later"])
def test_a_forked_process_is_told_to_load_for_itself(engine: str, tmp_path: Path) -> None:
    if engine == "ct2":
        pytest.importorskip("ctranslate2")
    run = shutil.copytree(FROZEN, tmp_path / "run")
    command = [sys.executable, "-c", PROGRAM, str(run), engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.splitlines()
    assert parent
    if engine == "later":
        assert child == parent
    else:
        assert child.startswith("refused: ")
        assert (
            'load the model there, start processes with multiprocessing.get_context("spawn"), or use threads' in child
        )
