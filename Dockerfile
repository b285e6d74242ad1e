# The server of `transduce serve`; how to run it: docs/serving.md
FROM python:3.11-slim

# CPUs only: CTranslate2 translates, and torch is there for those who look at attention.
COPY . /source
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir '/source[serve,ct2]' \
 && rm -rf /source \
 && useradd --system --uid 10001 transduce

USER 10001
EXPOSE 5000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health/live', timeout=3)"]
ENTRYPOINT ["transduce", "serve"]
