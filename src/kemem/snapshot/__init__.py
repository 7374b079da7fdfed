"""Backup and restore: a whole memory in one file, and back."""

from kemem.snapshot.recipes import Places, backup, restore
from kemem.snapshot.records import Backup

__all__ = ["Backup", "Places", "backup", "restore"]
