"""Models on this machine: model files, the in-process engine, and local model servers."""
