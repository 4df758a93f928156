"""Routing plans: who owns which unit, how queries are posted, and how one plan follows another."""
