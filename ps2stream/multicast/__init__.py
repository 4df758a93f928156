"""Multicasts of publications to the workers of their words, and what they are capped to (S3-TM;
algorithms.md 2 and 6).

Words with owners and versions, the placement of subscriptions, shedding levels and ranks: for
simulations and for dispatchers, pure, seeded, columnar. What learns the owners is in the planner.
"""
