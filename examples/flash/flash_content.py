"""Write the content of the flash memory for the example.

    python flash_content.py IMAGE.jpg FLASH.hex

The flash has the length of the file, 4 bytes, and behind it the file. The output is a text of bytes for $readmemh.
"""

import sys
from pathlib import Path

image, flash = map(Path, sys.argv[1:])
data = image.read_bytes()
flash.write_text("".join(f"{byte:02x}\n" for byte in len(data).to_bytes(4, "little") + data))
