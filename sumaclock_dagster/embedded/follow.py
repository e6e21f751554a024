"""New lines of a log that another process writes."""

from __future__ import annotations

from pathlib import Path

AT_ONCE = 20
READ_MAX_BYTES = 200_000


class Follow:
    """Follows `file` from its end on, as far as it exists, and tells the lines that begin with `prefix`."""

    def __init__(self, file: Path, prefix: str) -> None:
        self._file = file
        self._prefix = prefix
        self._place = file.stat().st_size if file.exists() else 0
        self._rest = b""

    def look(self) -> list[str]:
        """Whole new lines, at most so many that people can read; a last one says how many more there were."""
        lines = [text for text in self._read() if text.startswith(self._prefix)]
        if len(lines) > AT_ONCE:
            lines[AT_ONCE:] = [f"{self._prefix}{len(lines) - AT_ONCE} more, all in {self._file}"]
        return lines

    def _read(self) -> list[str]:
        try:
            with self._file.open("rb") as log:
                size = log.seek(0, 2)
                if size < self._place:
                    # It was cut short because it had grown long.
                    self._place, self._rest = 0, b""
                log.seek(self._place)
                new = log.read(READ_MAX_BYTES)
        except OSError:
            return []
        self._place += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [text.decode("utf-8", "replace") for text in whole]
