"""The matching algorithms of Le Subscribe (Fabret et al.; algorithms.md 3): counting, propagation,
static and dynamic clustering, behind one interface (`matcher`)."""
