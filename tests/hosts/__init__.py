"""Several hosts: network namespaces where we may make them, else addresses of this one."""
