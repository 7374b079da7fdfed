"""Workspaces: the folders in which tasks keep their files."""

from kemem.workspace.folders import StoredFile, Workspaces

__all__ = ["StoredFile", "Workspaces"]
