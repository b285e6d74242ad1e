"""What `serve_attack.py` sends to a server, and the clients that count its answers."""
