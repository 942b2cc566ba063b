"""The embedded AWS: MiniStack with what it lacks, started and stopped by us."""
