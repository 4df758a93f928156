"""The model of a service on many hosts: measured costs, real routing, flows, and time."""
