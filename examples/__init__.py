"""Real models as plain torch.nn, and programs that fuse and deploy them."""
