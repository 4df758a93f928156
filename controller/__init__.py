"""The controller: gathers loads and proposes adjustments."""
