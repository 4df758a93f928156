"""The planner: decides which worker serves which part of space and which terms."""
