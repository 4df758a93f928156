"""The archive of a service's objects: its folders, files and columns, and how it is read."""
