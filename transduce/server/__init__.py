"""The HTTP server: LibreTranslate's API, the /v1 API and a web page. Needs the extra `serve`.

This file imports nothing, so that `transduce serve --help` does not load a web framework.
"""
