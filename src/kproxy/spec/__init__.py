"""The specification: cluster objects and one packet in, the set of lawful outcomes out.

Imports only `kproxy.model.api` and `kproxy.model.network`; shares no policy code with the proxy.
"""
