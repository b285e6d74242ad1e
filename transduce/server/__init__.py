"""The HTTP server: LibreTranslate's API and our own over the models of run folders. Needs the extra `serve`.

Nothing is imported here: whoever asks for help need not wait for a web framework.
"""
