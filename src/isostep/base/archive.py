"""Zip files that may be anything: how many entries they hold is known before they are listed."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import IO

from isostep.base.limits import within

END, END_64, LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
TAIL = 22 + 2**16  # the end record and its longest comment
ENTRY = 46  # bytes of an entry in the list, at least


def check_entries(file: IO[bytes], path: str | Path) -> None:
    """Refuse a zip file whose list is too long. The list's bytes are counted: the number of entries may be a lie."""
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - TAIL - 20))
    tail = file.read()
    place = tail.rfind(END)
    if 0 <= place <= len(tail) - 22:
        listed = struct.unpack("<L", tail[place + 12 : place + 16])[0]
        if place >= 20 and tail[place - 20 : place - 16] == LOCATOR:  # the large form: the true size stands elsewhere
            file.seek(min(struct.unpack("<Q", tail[place - 12 : place - 4])[0], size))
            record = file.read(48)
            if len(record) == 48 and record[:4] == END_64:
                listed = max(listed if listed < 2**32 - 1 else 0, struct.unpack("<Q", record[40:48])[0])
        within("archive_entries", min(listed, size) // ENTRY, f"{path} is a zip file of {listed // ENTRY:,} entries")
    file.seek(0)
