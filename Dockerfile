# The server of `transduce serve`; how to run it: docs/how-to/deploying.md.
#
# BASE          an image with Python 3.11 or newer as python3
# TORCH_INDEX   where pip finds PyTorch: by default its builds for CPUs. For GPUs, for example, https://download.pytorch.org/whl/cu130
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/transduce
COPY . /source
RUN /opt/transduce/bin/pip install --no-cache-dir --index-url ${TORCH_INDEX} -r /source/constraints.txt \
 && /opt/transduce/bin/pip install --no-cache-dir -c /source/constraints.txt '/source[serve,ct2]'
# Headers, compilers and tests of the packages, and pip: what a server never uses.
RUN cd /opt/transduce/lib/python3*/site-packages \
 && rm -rf torch/include torch/share torch/test pip pip-*.dist-info \
 && find torch/bin -type f ! -name torch_shm_manager -delete \
 && find . -type d -name tests -prune -exec rm -rf {} +

FROM ${BASE}
RUN useradd --no-create-home --uid 10001 transduce
COPY --from=build /opt/transduce /opt/transduce
# With a read-only root, /tmp is the one folder that a process can write to.
ENV PATH=/opt/transduce/bin:$PATH HOME=/tmp
USER 10001
EXPOSE 5000
HEALTHCHECK CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health/live', timeout=3)"]
ENTRYPOINT ["transduce", "serve"]
