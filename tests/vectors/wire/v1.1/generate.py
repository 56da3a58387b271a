"""Writes the frozen messages beside this file."""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))

import exchange  # noqa: E402

exchange.write(HERE, 1)
