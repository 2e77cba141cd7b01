"""Values that every other package speaks in: network values and Kubernetes API objects.  Pure; imports nothing of kproxy."""
