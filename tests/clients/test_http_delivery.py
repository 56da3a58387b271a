"""The filter by HTTP, as docs/delivery.md says: fetched once by Envoy, and used only if its sum is right."""

import hashlib
import os
import tempfile
import threading
import unittest
import urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stack import Stack, post

CHAT = {"model": "sim", "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 4}


class HttpDelivery(unittest.TestCase):
    def setUp(self):
        running = Stack("unused")
        self.module = module = Path(running.wasm).read_bytes()

        class Files(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-length", str(len(module)))
                self.end_headers()
                self.wfile.write(module)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.port = server.server_port

    def answered(self, sha256):
        """Status of a chat, and what Envoy's access log says of it, once it listens."""
        folder = tempfile.mkdtemp(prefix="clients-http-", dir=os.environ.get("RUN", ".run"))
        with Stack(folder, self.port, sha256) as running:
            statuses = []

            def ask():
                try:
                    post(running.url + "/v1/chat/completions", CHAT)
                    statuses.append(200)
                except urllib.error.HTTPError as error:
                    statuses.append(error.code)
                return True

            running.wait("an answer", ask)
            return statuses[-1], running.wait_for_entries(1)[0]

    def test_with_the_right_sum_it_decides(self):
        status, entry = self.answered(hashlib.sha256(self.module).hexdigest())
        self.assertEqual(status, 200)
        self.assertTrue(entry["reason"])

    def test_with_another_sum_it_is_not_used_and_nothing_is_served(self):
        status, entry = self.answered("0" * 64)
        self.assertEqual((status, entry["details"]), (503, "wasm_fail_stream"))
