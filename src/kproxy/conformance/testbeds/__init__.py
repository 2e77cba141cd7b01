"""Where cases run: `simulator` (rules walked in memory) and `netns` (real packets)."""
