"""The files of deploy/: each is checked by the program it is for, and agrees with the limits of the server."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("yaml")

import httpx
import yaml
from serving import Client, client, refused, run, service, symbols

from transduce.cli.parser import make_parser
from transduce.server.limits import FORM_BYTES
from transduce.server.settings import ServerSettings
from transduce.server.transcribe_routes import UPLOADS

DEPLOY = Path(__file__).parents[1] / "deploy"
PROXY = (DEPLOY / "nginx" / "proxy.conf").read_text()
SCRIPTS = sorted((DEPLOY / "slurm").glob("*.sh"))
LONGEST_S = ServerSettings().body_s + ServerSettings().request_s  # until the last accepted request is answered


def program(*names: str) -> str:
    """The first of these programs that is installed, here or with the Python packages."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
    found = next((path for name in names if (path := shutil.which(name, path=folders))), "")
    if not found:
        pytest.skip(f"{names[0]} is not installed")
    return found


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / path).read_text()))


def serve_yaml() -> dict[str, Any]:
    return dict(documents("kubernetes/serve.yaml")[0]["spec"]["template"]["spec"])


# --- nginx -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an nginx with the files of deploy/, whose replicas are away."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    (folder / "proxy.conf").write_text(
        PROXY.replace("/var/log/nginx/", f"{folder}/").replace("listen 8080;", f"listen 127.0.0.1:{port};")
    )
    replicas = (DEPLOY / "nginx" / "replicas.conf").read_text()
    (folder / "replicas.conf").write_text(re.sub(r"127\.0\.0\.1:\d+", lambda _: f"127.0.0.1:{free_port()}", replicas))
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{name}_temp_path {folder}/{name}; " for name in names)
    files = f"include {folder}/proxy.conf; include {folder}/replicas.conf;"
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/pid; events {{}} http {{ {temporary} {files} }}")
    command = [program("nginx"), "-p", folder, "-e", folder / "errors", "-c", folder / "nginx.conf"]
    checked = subprocess.run([*command, "-t", "-q"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    running = subprocess.Popen(command)
    until = time.monotonic() + 60
    while time.monotonic() < until and not listens(port):
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    running.terminate()
    assert running.wait(60) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.parametrize(
    ("size", "status", "error"),
    [(100, 503, "no server is available, try again later"), (2_000_000, 413, "the body is too large")],
)
def test_nginx_refuses_as_the_server_does(nginx: str, size: int, status: int, error: str) -> None:
    answer = httpx.post(f"{nginx}/translate", content=b"a" * size)
    assert error in refused(answer, status)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)


def test_nginx_does_not_show_the_figures_of_one_replica(nginx: str) -> None:
    assert httpx.get(f"{nginx}/metrics").status_code == 404


def test_nginx_repeats_posts_of_the_routes_that_only_compute(client: Client) -> None:
    """A new route with POST belongs into the list of deploy/nginx/proxy.conf if repeating it changes nothing, else into a list here."""
    repeated = re.findall(r"location ~ \^/\((.*)\)\$ \{[^}]*proxy_next_upstream error timeout non_idempotent;", PROXY)
    paths = client.get("/openapi.json").json()["paths"]
    posts = {path for path, operations in paths.items() if "post" in operations}
    assert {f"/{path}" for paths in repeated for path in paths.split("|")} == posts
    assert PROXY.count("non_idempotent") == len(repeated)


def test_nginx_lets_recordings_through() -> None:
    (found,) = re.findall(r"location ~ \^/\((v1/transcribe.*)\)\$ \{([^}]*)\}", PROXY)
    assert {f"/{path}" for path in found[0].split("|")} == UPLOADS
    most = ServerSettings().audio_bytes + FORM_BYTES
    for name in ("client_max_body_size", "client_body_buffer_size"):
        (megabytes,) = re.findall(rf"{name} (\d+)m;", found[1])
        assert int(megabytes) * 2**20 >= most
    assert f"at most {most:,} bytes" in PROXY


def test_nginx_waits_longer_than_the_server() -> None:
    settings = ServerSettings()
    limits = dict(re.findall(r"^    (\w+) (\d+)[sm];", PROXY, flags=re.MULTILINE))
    assert int(limits["proxy_read_timeout"]) > LONGEST_S
    assert int(limits["client_body_timeout"]) == settings.body_s
    assert int(limits["client_header_timeout"]) == settings.header_s
    for name in ("client_max_body_size", "client_body_buffer_size"):
        assert int(limits[name]) * 2**20 >= settings.body_bytes
    assert f"at most {settings.body_bytes:,} bytes" in PROXY


# --- compose and Kubernetes ------------------------------------------------------------------------------------


def test_compose_accepts_its_file() -> None:
    command = [program("docker-compose"), "-f", DEPLOY / "compose" / "compose.yaml", "config"]
    variables = {"MODEL": "/runs/en-de", "KEYS": "/keys.jsonl", "REPLICAS": "3"}
    checked = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert yaml.safe_load(checked.stdout)["services"]["transduce"]["deploy"]["replicas"] == 3


@pytest.mark.parametrize("version", ["1.29", "1.33"])
@pytest.mark.parametrize("file", ["serve", "autoscale"])
def test_kubernetes_accepts_the_manifests(file: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for document in documents(f"kubernetes/{file}.yaml"):
        validate(document, version, strict=True)


def test_kubernetes_accepts_the_pods_that_train() -> None:
    """PyTorchJob is not a part of Kubernetes, but its pods are."""
    validate = pytest.importorskip("kubernetes_validate").validate
    job = documents("kubernetes/train.yaml")[0]
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    validate({"apiVersion": "v1", "kind": "PodTemplate", "template": template}, "1.29", strict=True)
    torchrun, m, name, *command = template["spec"]["containers"][0]["command"]
    assert (torchrun, m, name) == ("torchrun", "-m", "transduce")
    make_parser().parse_args(command)


def test_the_commands_of_the_servers_are_understood() -> None:
    compose = documents("compose/compose.yaml")[0]["services"]["transduce"]["command"]
    manifest = serve_yaml()["containers"][0]["args"]
    for arguments in ([re.sub(r"\$\{\w+:-(\w+)\}", r"\1", one) for one in compose], manifest):
        options = make_parser().parse_args(["serve", *arguments])
        assert options.keys
    replicas = documents("kubernetes/serve.yaml")[0]["spec"]["replicas"]
    assert make_parser().parse_args(["serve", *manifest]).replicas == replicas


def test_a_replica_has_the_time_to_answer_what_it_accepted() -> None:
    pod = serve_yaml()
    command, pause = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod["terminationGracePeriodSeconds"] > int(pause) + LONGEST_S
    compose = documents("compose/compose.yaml")[0]["services"]["transduce"]
    assert int(compose["stop_grace_period"].removesuffix("s")) > LONGEST_S


def test_probes_ask_open_routes(client: Client) -> None:
    container = serve_yaml()["containers"][0]
    paths = {container[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {"/health/live", "/health/ready"}
    assert all(client.get(path).status_code == 200 for path in paths)


# --- SLURM -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    checked = subprocess.run([program("shellcheck"), script], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs that take the place of SLURM's; what is asked of `scontrol` and `transduce` is written down."""
    programs = {
        "transduce": 'echo "$@" >> asked',
        "srun": 'trap "exit 1" TERM; touch running; [ ! -e fails ] || exit 7; while [ ! -e told ]; do sleep 0.02; done; exit 1',
        "scancel": 'echo "scancel $@" >> asked; touch told',
        "scontrol": 'case "$2" in hostnames) echo node0;; job) cat job;; *) echo "$@" >> asked;; esac',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job").write_text("JobId=5 PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=None Partition=low\n")
    (tmp_path / "asked").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, value in {"JOB_ID": 5, "JOB_NODELIST": "node[0-1]", "NTASKS": 2}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def set_array(monkeypatch: pytest.MonkeyPatch, least: int, most: int, count: int) -> None:
    for name, value in {"MIN": least, "MAX": most, "COUNT": count, "ID": most}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))


def test_a_task_of_the_array_takes_its_shards(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_array(monkeypatch, 0, 3, 4)
    subprocess.run([DEPLOY / "slurm" / "batch.sh", "run", "in put", "--output", "out"], check=True)
    assert (slurm / "asked").read_text() == "batch run in put --output out --shard 3 --shards 4\n"


@pytest.mark.parametrize(("least", "most", "count"), [(1, 4, 4), (0, 6, 4)])
def test_an_array_with_gaps_is_refused(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, least: int, most: int, count: int
) -> None:
    set_array(monkeypatch, least, most, count)
    ended = subprocess.run([DEPLOY / "slurm" / "batch.sh", "run"], capture_output=True, text=True)
    assert (ended.returncode, (slurm / "asked").read_text()) == (2, "")
    assert "submit the whole array again" in ended.stderr


def start_training(slurm: Path) -> "subprocess.Popen[bytes]":
    training = subprocess.Popen([DEPLOY / "slurm" / "train.sh", "run"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (slurm / "running").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    return training


def test_a_run_near_its_time_limit_is_requeued(slurm: Path) -> None:
    training = start_training(slurm)
    training.send_signal(signal.SIGUSR1)
    assert training.wait(60) == 0
    assert (slurm / "asked").read_text() == "scancel --signal=TERM 5\nrequeue 5\n"


def test_a_preempted_run_is_requeued(slurm: Path) -> None:
    (slurm / "job").write_text("JobId=5 PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=2026-01-01T00:00:09\n")
    training = start_training(slurm)
    (slurm / "told").touch()
    assert training.wait(60) == 0
    assert (slurm / "asked").read_text() == "requeue 5\n"


def test_a_run_that_fails_is_not_requeued(slurm: Path) -> None:
    (slurm / "fails").touch()
    assert start_training(slurm).wait(60) == 7
    assert (slurm / "asked").read_text() == ""
