"""The descriptor in torch: modules, sampling at LAFs, export."""
