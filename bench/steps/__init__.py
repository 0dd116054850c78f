"""What bench.training times: models, cases, the variants of a step, its check and measurement."""
