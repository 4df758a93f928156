"""Routing plans: who owns which unit, how queries are posted, how one plan follows another."""
