"""Frames of one record of a shard: found by their places, read, checked and decompressed.

magic             names the format
length, 4 bytes   of the head frame, little-endian
head              a zstd frame that says where the other frames lie
frames            zstd, each with its size inside; their places count from the end of the head
"""

import struct
from collections.abc import Callable

import zstandard


class DamagedShardError(ValueError):
    """The bytes are not what was written."""


class Frames:
    """`read(start, length)` gives bytes of a record of `length` bytes, the first `ahead` at once.

    All raise DamagedShardError where the bytes are not a record's, or a place is not inside it.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], length: int, magic: bytes, ahead: int
    ) -> None:
        self._read, self._length = read, length
        self._start = read(0, min(length, ahead))
        self._prefix = len(magic) + 4
        if len(self._start) < self._prefix or not self._start.startswith(magic):
            raise DamagedShardError("This part of the shard is damaged: no record begins here.")
        (self._head,) = struct.unpack_from("<I", self._start, len(magic))
        if self._prefix + self._head > length:
            raise DamagedShardError("This part of the shard is damaged: it ends inside the head.")

    def head(self, most: int) -> bytes:
        return self.frame(-self._head, self._head, most)

    def frame(self, place: int, length: int, most: int) -> bytes:
        """What a frame of `length` bytes holds. One that says it holds more than `most` is not
        decompressed."""
        start = self._prefix + self._head + place
        if start < self._prefix or length < 0 or start + length > self._length:
            raise DamagedShardError("This part of the shard is damaged: it points elsewhere.")
        if start + length <= len(self._start):
            data = self._start[start : start + length]
        else:
            data = self._read(start, length)
        try:
            if not 0 <= zstandard.frame_content_size(data) <= most:
                raise DamagedShardError("This part of the shard is damaged: of unusual size.")
            return zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise DamagedShardError(f"This part of the shard is damaged: {error}") from error
