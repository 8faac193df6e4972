"""Operations: audit log, health, metrics, diagnosis and logs."""
