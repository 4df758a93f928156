"""The common part of the experiments on keyed streams: streams, loads, states and times."""
