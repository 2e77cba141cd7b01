"""The API server's side of the daemon: client, credentials, list and watch, the store, Events."""
