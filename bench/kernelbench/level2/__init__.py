"""Problems of a checkout of KernelBench, with a product of matrices each, behind `fuse`."""
