"""One stack for all tests, and what they assert of conversations."""

import atexit
import functools
import os
import tempfile
import unittest

from stack import Stack

TURNS = 3
# By chance all follow-ups of so many conversations meet the engine of their first turn once in half a million.
CONVERSATIONS = 6

@functools.cache
def stack():
    folder = tempfile.mkdtemp(prefix="clients-", dir=os.environ.get("RUN", ".run"))
    running = Stack(folder).__enter__()
    atexit.register(running.stop)
    return running


# What the filter says of a request that went where its prefix is.
AT_HOME = {"prefix", "recent", "pinned"}


class Told:
    """`with Told() as told:` around one request: what Envoy's access log says of it."""

    def __enter__(self):
        self._before = len(stack().access_log())
        return self

    def __exit__(self, kind, *_):
        # Also where the client raised: the entry must not be taken for the next request's.
        entries = stack().wait_for_entries(self._before + 1)[self._before :]
        if kind is None:
            assert len(entries) == 1, entries
            self.engine, self.reason = entries[0]["upstream"], entries[0]["reason"]

    def __repr__(self):
        return f"{self.engine} for {self.reason}"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.homes = []

    @classmethod
    def tearDownClass(cls):
        # That a conversation stays says nothing where all would. Six may meet at one of three engines by chance, once
        # in 243 times, or because they share their tools; twelve do so once in 177,000.
        if len(cls.homes) >= 2 * CONVERSATIONS:
            assert len(set(cls.homes)) > 1, f"all conversations at one engine: {cls.homes}"

    def check(self, conversations):
        """Each is a list of (told, cached tokens), one a turn: all at one engine, and more cached each time."""
        for turns in conversations:
            engines = {told.engine for told, _ in turns}
            cached = [tokens for _, tokens in turns]
            self.assertEqual(len(engines), 1, turns)
            self.assertLessEqual({told.reason for told, _ in turns[1:]}, AT_HOME, turns)
            self.assertEqual(cached, sorted(set(cached)), f"more each time: {turns}")
            self.assertGreater(cached[1], 200, f"most of the prompt: {turns}")
            self.homes.append(turns[0][0].engine)
