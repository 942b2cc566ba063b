"""Where observations come from and verdicts go: ports and their adapters."""
