"""The notice that load was shed, as a subscriber receives it."""

from __future__ import annotations

import dataclasses

from ps2stream.v1 import delivery_pb2


@dataclasses.dataclass(frozen=True, slots=True)
class ShedLoad:
    """A notice that load was shed from `from_ms` to `to_ms`, Unix ms, for objects that were
    accepted as from_offset..to_offset (exclusive) of `partition`: `objects` of them, of the levels
    ACCEPTED and NONE, did not go to all workers that have queries for them. `share` is the
    estimated part of its matches with such objects that this session did not receive, from
    `sampled_matches` of all sessions; it is not known where these are 0."""

    partition: int
    from_ms: int
    to_ms: int
    from_offset: int
    to_offset: int
    objects: int
    sampled_matches: int
    share: float

    def __str__(self) -> str:
        part = f"about {self.share:.1%}" if self.sampled_matches else "an unknown part"
        return (
            f"load was shed for {(self.to_ms - self.from_ms) / 1000:.1f} s by dispatcher "
            f"{self.partition}: {self.objects} objects were not matched by all workers, and {part} "
            "of the matches with such objects may be missing"
        )


def read_shed(shed: delivery_pb2.ShedLoad) -> ShedLoad:
    """Decodes a ShedLoad."""
    return ShedLoad(
        shed.partition, shed.from_ms, shed.to_ms, shed.from_offset, shed.to_offset,
        shed.objects, shed.sampled_matches, shed.share,
    )  # fmt: skip
