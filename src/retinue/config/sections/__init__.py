"""Settings of what no package below `config` owns."""
