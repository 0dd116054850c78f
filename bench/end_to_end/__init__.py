"""What bench.end_to_end times: real models, given to `fuse` as they are."""
