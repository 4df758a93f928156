"""The ledger and the sequencer that owns its order."""

from ps2stream.store.ledger import Ledger
from ps2stream.store.memory import MemoryStore
from ps2stream.store.registry import Registry
from ps2stream.store.sequencer import SequencerMachine

__all__ = ["Ledger", "MemoryStore", "Registry", "SequencerMachine"]
