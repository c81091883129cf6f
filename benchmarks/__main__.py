"""List the benchmarks: the name and the first sentence of each."""

import ast
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    text = path.read_text()
    if "\nif __name__ ==" in text:
        doc = ast.get_docstring(ast.parse(text)) or ""
        print(f"{path.stem:18}", " ".join(doc.partition("\n\n")[0].split()))
