"""The daemon's connection to the API server: client, credentials, list and watch, the store, Events."""
