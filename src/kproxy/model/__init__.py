"""Values that every other package uses: network values and Kubernetes API objects.

Pure; imports nothing of kproxy.
"""
