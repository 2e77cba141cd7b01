"""The specification: cluster objects and one packet in, the set of lawful outcomes out.

Imports only `kproxy.api` and `kproxy.net`; shares no policy code with the proxy.
"""
