"""Benchmarks of KeMem beside its peers; `python -m bench` runs the speed benchmark."""
