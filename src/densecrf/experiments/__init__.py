"""The paper's evaluation: metrics, resumable records, tables."""
