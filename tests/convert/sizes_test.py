"""What docs/models.md says each model costs, against what `mneme model inspect` prints for folders of
the published sizes (tools/convert/published_sizes.py). Needs Python alone.

    MNEME=build/release/cli/mneme python3 tests/convert/sizes_test.py
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MNEME = os.environ.get("MNEME", ROOT / "build/release/cli/mneme")


def documented():
    """(model, reader, weights, session, token) of each row of the table."""
    table = (ROOT / "docs/models.md").read_text().split("| model | files | reader |")[1]
    model = ""
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            return
        name, _, reader, weights, session, token = (cell.strip() for cell in line.strip("|").split("|"))
        model = name or model
        yield model, reader.split(",")[0], weights, session, token


def inspected(folder):
    """The same cells as the program prints them: weights, and reader -> (session, token)."""
    text = subprocess.run([MNEME, "model", "inspect", folder], capture_output=True, text=True,
                          check=True).stdout
    weights = re.search(r"in memory: ([\d.]+ [KMG]iB) of weights", text)[1]
    block = re.search(r"a session (.*) a block of (\d+) tokens, (at most .*)", text)
    if block:
        return weights, {"mhla": (block[3], f"{block[1]} a block of {block[2]}")}
    rows = re.findall(r"^  (\w+) +(\d+) +[\d.]+ \w+ +([\d.]+ [KMG]iB) ", text, re.MULTILINE)
    return weights, {reader: (session, f"{int(token):,} B" if int(token) else "0")
                     for reader, token, session in rows}


class SizesTest(unittest.TestCase):
    def test_the_table_is_what_inspect_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            subprocess.run([sys.executable, ROOT / "tools/convert/published_sizes.py", folder], check=True)
            seen = set()
            for model, reader, *cells in documented():
                own = folder / model
                if model == "demo":
                    own = ROOT / "checkpoints/demo"
                elif model.startswith("Qwen") and reader != "native":
                    own = folder / f"{model}-{reader}"
                weights, readers = inspected(own)
                self.assertEqual([weights, *readers[reader]], cells, (model, reader))
                seen.add(own.name)
            self.assertEqual(seen - {"demo"}, {each.name for each in folder.iterdir()})


if __name__ == "__main__":
    unittest.main()
